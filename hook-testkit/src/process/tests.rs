//! Tests of the handle on a child process, with a shell as the child.

use std::os::unix::process::ExitStatusExt;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn shell(script: &str) -> ProcessBuilder {
    ProcessBuilder::path("/bin/sh")
        .argument("-c")
        .argument(script)
}

#[tokio::test]
async fn output_is_kept_line_by_line_to_the_end() {
    let mut process = shell("echo one; echo two >&2; printf three").start();
    assert!(process.wait_exit(LIMIT).await.success());
    let mut texts: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
    texts.sort();
    assert_eq!(texts, ["one", "three", "two"]);
}

#[tokio::test]
async fn the_environment_is_only_what_the_test_gives() {
    let mut process = shell("env").set("HOOK_X", "1").start();
    process.wait_exit(LIMIT).await;
    let lines = process.lines();
    let has = |prefix: &str| lines.iter().any(|line| line.text.starts_with(prefix));
    assert!(has("HOOK_X=1") && has("PATH="));
    assert!(!has("CARGO"), "{lines:?}");
}

#[tokio::test]
async fn signals_arrive_and_the_exit_status_tells() {
    let mut process = shell("trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done").start();
    process.wait_line(LIMIT, |line| line.text == "up").await;
    process.signal(Signal::Stop);
    process.signal(Signal::Continue);
    assert_eq!(process.exit_status(), None);
    assert_eq!(process.terminate(LIMIT).await.code(), Some(7));

    let mut process = shell("echo up; exec sleep 60").start();
    process.wait_line(LIMIT, |line| line.text == "up").await;
    process.signal(Signal::Kill);
    assert_eq!(process.wait_exit(LIMIT).await.signal(), Some(9));
}

#[tokio::test]
async fn a_limit_on_files_holds_for_the_program_itself() {
    let mut process = ProcessBuilder::path("/bin/sh")
        .argument("-c")
        .argument("ulimit -n; echo $$")
        .open_files_max(77)
        .start();
    process.wait_exit(LIMIT).await;
    let texts: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
    assert_eq!(texts, ["77".to_owned(), process.pid().to_string()]);
}

#[tokio::test]
async fn a_dropped_process_is_killed() {
    let process = shell("exec sleep 60").start();
    let pid = process.pid();
    drop(process);
    wait_for(
        LIMIT,
        async || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default(),
        |stat| stat.is_empty() || stat.contains(") Z "),
    )
    .await;
}
