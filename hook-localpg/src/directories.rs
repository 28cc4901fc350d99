//! Directories for files that the server's user must reach.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::account::Account;

/// Creates a directory for files that the account must reach, and gives its real path.
///
/// Root's home is closed to everybody else. A directory below such a place is replaced by one in
/// `/var/tmp` whose name is made from the wanted path, so that the next start finds it again.
pub(crate) fn reachable_directory(wanted: &Path, account: Option<Account>) -> io::Result<PathBuf> {
    fs::create_dir_all(wanted)?;
    let wanted = wanted.canonicalize()?;
    let Some(account) = account else {
        return Ok(wanted);
    };
    if let Some(parent) = wanted.parent()
        && account.can_traverse(parent)?
    {
        fs::set_permissions(&wanted, Permissions::from_mode(0o711))?;
        return Ok(wanted);
    }
    let digest = Sha256::digest(wanted.as_os_str().as_encoded_bytes());
    let name: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let replacement = Path::new("/var/tmp").join(format!("hook-root-{name}"));
    create_for_root(&replacement)?;
    Ok(replacement)
}

/// Creates a directory in a place where anybody may create one, and refuses somebody else's.
fn create_for_root(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || metadata.uid() != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to somebody else", directory.display()),
        ));
    }
    fs::set_permissions(directory, Permissions::from_mode(0o711))
}

/// Memory that has to be free before a server's files are kept there.
const MEMORY_FREE_MIN: u64 = 4 << 30;

/// Where a server's private directory may lie, best first.
pub(crate) fn private_places(in_memory: bool) -> Vec<&'static str> {
    const MEMORY: &str = "/dev/shm";
    let disks = ["/var/tmp", "/tmp"];
    let has_room = || {
        rustix::fs::statvfs(MEMORY)
            .is_ok_and(|space| space.f_bavail * space.f_frsize >= MEMORY_FREE_MIN)
    };
    (in_memory && has_room())
        .then_some(MEMORY)
        .into_iter()
        .chain(disks)
        .collect()
}

/// Makes a directory that nobody but the server's user can look into, in the first place that
/// allows it.
pub(crate) fn temporary_directory(
    places: &[&str],
    prefix: &str,
    account: Option<Account>,
) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        let made = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place);
        match made {
            Ok(directory) => {
                if let Some(account) = account {
                    account.own(directory.path())?;
                }
                return directory.keep().canonicalize();
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
