//! [`Quarantine`]: jobs that have ended a helper.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::error::HelperError;

/// So many keys are known; the oldest makes room. Without a bound, a host that compiles what strangers send grows for ever.
const KEYS_MAX: usize = 10_000;

/// The keys of jobs that have ended a helper, and how.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    known: HashMap<[u8; 32], Arc<HelperError>>,
    order: VecDeque<[u8; 32]>,
}

impl Quarantine {
    pub(super) fn of(&self, key: &[u8; 32]) -> Option<Arc<HelperError>> {
        self.known.get(key).cloned()
    }

    pub(super) fn add(&mut self, key: [u8; 32], error: &HelperError) {
        if self.known.insert(key, Arc::new(error.clone())).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_key_makes_room() {
        let mut quarantine = Quarantine::default();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        let error = HelperError::TooLarge { why: String::new() };
        (0..=KEYS_MAX).for_each(|number| quarantine.add(key(number), &error));
        quarantine.add(key(KEYS_MAX), &error);
        assert_eq!((quarantine.len(), quarantine.order.len()), (KEYS_MAX, KEYS_MAX));
        assert!(quarantine.of(&key(0)).is_none() && quarantine.of(&key(1)).is_some());
    }
}
