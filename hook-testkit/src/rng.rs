//! Randomness that can be had again.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// The environment variable that fixes the seed.
const SEED_VARIABLE: &str = "HOOK_TEST_SEED";

/// A random generator that prints its seed when its test fails.
#[derive(Debug)]
pub struct TestRng {
    seed: u64,
    generator: StdRng,
}

impl TestRng {
    /// Takes the seed of `HOOK_TEST_SEED`, or a new one.
    ///
    /// # Panics
    /// When the variable is set to something else than a number.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each generator is another one, which a default value would hide"
    )]
    pub fn new() -> Self {
        let given = std::env::var_os(SEED_VARIABLE).map(|text| {
            let number = text.to_str().and_then(|text| text.parse().ok());
            number.unwrap_or_else(|| panic!("{SEED_VARIABLE} is not a number: {text:?}"))
        });
        Self::seeded(given.unwrap_or_else(rand::random))
    }

    /// Takes this seed, for a failure that became an example.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            generator: StdRng::seed_from_u64(seed),
        }
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The generator itself, with all methods of the `rand` crate.
    pub fn generator(&mut self) -> &mut StdRng {
        &mut self.generator
    }
}

impl Drop for TestRng {
    #[expect(
        clippy::print_stderr,
        reason = "the test harness shows this beside the failure"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run this test again with {SEED_VARIABLE}={}", self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut first = TestRng::new();
        let mut second = TestRng::seeded(first.seed());
        let numbers = |rng: &mut TestRng| -> [u64; 4] { rng.generator().random() };
        assert_eq!(numbers(&mut first), numbers(&mut second));
    }
}
