//! [`Quarantine`]: jobs that have ended a helper. One that worked before may have been damaged by another job, so that proves little.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::error::HelperError;

/// So many keys are known; the oldest makes room. Without a bound, a host that compiles what strangers send grows for ever.
const KEYS_MAX: usize = 10_000;

/// The keys of jobs that have ended a helper, and how: nothing of those that are only suspected.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    known: HashMap<[u8; 32], Option<Arc<HelperError>>>,
    order: VecDeque<[u8; 32]>,
}

impl Quarantine {
    pub(super) fn of(&self, key: &[u8; 32]) -> Option<Arc<HelperError>> {
        self.known.get(key).cloned().flatten()
    }

    /// A job has ended a helper, which was or was not `fresh`. The second time proves it in either case: no two helpers share damage.
    pub(super) fn add(&mut self, key: [u8; 32], error: &HelperError, fresh: bool) {
        let is_proven = fresh || self.known.contains_key(&key);
        if self.known.insert(key, is_proven.then(|| Arc::new(error.clone()))).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A job was done. If it was only suspected, it is no longer.
    pub(super) fn clear_of_doubt(&mut self, key: &[u8; 32]) {
        if matches!(self.known.get(key), Some(None)) {
            self.known.remove(key);
            self.order.retain(|known| known != key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.values().flatten().count()
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
        (0..=KEYS_MAX).for_each(|number| quarantine.add(key(number), &error, true));
        quarantine.add(key(KEYS_MAX), &error, true);
        assert_eq!((quarantine.len(), quarantine.order.len()), (KEYS_MAX, KEYS_MAX));
        assert!(quarantine.of(&key(0)).is_none() && quarantine.of(&key(1)).is_some());
    }

    #[test]
    fn a_helper_that_had_worked_proves_nothing_but_a_second_one_does() {
        let (mut quarantine, key) = (Quarantine::default(), [1; 32]);
        let error = HelperError::TooLarge { why: String::new() };
        quarantine.add(key, &error, false);
        assert!(quarantine.of(&key).is_none() && quarantine.len() == 0);
        quarantine.add(key, &error, false);
        assert!(quarantine.of(&key).is_some() && quarantine.len() == 1);
        quarantine.clear_of_doubt(&key);
        assert!(quarantine.of(&key).is_some(), "that is no doubt");
        quarantine.add([3; 32], &error, false);
        quarantine.clear_of_doubt(&[3; 32]);
        quarantine.add([3; 32], &error, false);
        assert!(quarantine.of(&[3; 32]).is_none());
        quarantine.add([2; 32], &error, true);
        assert!(quarantine.of(&[2; 32]).is_some());
    }
}
