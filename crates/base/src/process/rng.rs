//! Random numbers, for jitter and identities. Seeded in a simulation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A shared source of random numbers.
#[derive(Clone)]
pub struct Rng(Arc<Mutex<StdRng>>);

impl Rng {
    /// Seeded by the operating system.
    pub fn system() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// The same sequence for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A number in `[0, 1)`.
    pub fn fraction(&self) -> f64 {
        self.0.lock().random()
    }

    /// `base` plus up to `share` of it (`0.2` is up to 20 %): jitter never shortens a delay.
    pub fn jittered(&self, base: Duration, share: f64) -> Duration {
        base + base.mul_f64(share * self.fraction())
    }

    /// A number of sixteen bits.
    pub fn short(&self) -> u16 {
        self.0.lock().random()
    }

    /// Eight lower-case hexadecimal characters, for identities.
    pub fn suffix(&self) -> String {
        let number: u32 = self.0.lock().random();
        format!("{number:08x}")
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rng")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (a, b) = (Rng::seeded(7), Rng::seeded(7));
        assert_eq!(a.suffix(), b.suffix());
        assert!((a.fraction() - b.fraction()).abs() < f64::EPSILON);
    }

    #[test]
    fn jitter_never_shortens() {
        let rng = Rng::seeded(1);
        for _ in 0..100 {
            let delay = rng.jittered(Duration::from_secs(10), 0.2);
            assert!(delay >= Duration::from_secs(10) && delay <= Duration::from_secs(12));
        }
    }
}
