//! A list with cheap insertion and removal at any position.
//!
//! A plain vector moves all following elements, so ten thousand insertions at the front of a million elements would
//! take a minute. Here elements are stored in chunks, and only one chunk moves.

/// The maximum number of elements per chunk.
const MAX_CHUNK: usize = 2048;

/// A list of small values.
#[derive(Debug, Clone, Default)]
pub(super) struct List<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T: Copy> List<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The element at `index`, which is less than the length.
    pub(super) fn get(&self, index: usize) -> Option<T> {
        let (chunk, offset) = self.locate(index);
        self.chunks.get(chunk)?.get(offset).copied()
    }

    /// Replaces the element at `index`, if it exists.
    pub(super) fn set(&mut self, index: usize, value: T) {
        let (chunk, offset) = self.locate(index);
        if let Some(slot) = self
            .chunks
            .get_mut(chunk)
            .and_then(|chunk| chunk.get_mut(offset))
        {
            *slot = value;
        }
    }

    /// Inserts `value` before the element at `index`, or at the end.
    pub(super) fn insert(&mut self, index: usize, value: T) {
        let (mut at, mut offset) = self.locate(index);
        if at == self.chunks.len() {
            match self.chunks.last() {
                Some(last) => (at, offset) = (at - 1, last.len()),
                None => self.chunks.push(Vec::new()),
            }
        }
        let chunk = &mut self.chunks[at];
        chunk.insert(offset.min(chunk.len()), value);
        self.len += 1;
        if chunk.len() > MAX_CHUNK {
            let tail = chunk.split_off(MAX_CHUNK / 2);
            self.chunks.insert(at + 1, tail);
        }
    }

    /// Removes the element at `index`, if it exists.
    pub(super) fn remove(&mut self, index: usize) {
        let (at, offset) = self.locate(index);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return;
        };
        chunk.remove(offset);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = T> {
        self.chunks.iter().flatten().copied()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }

    /// The chunk of an index and the position in it; one past the last chunk for the end.
    fn locate(&self, index: usize) -> (usize, usize) {
        let mut offset = index;
        for (at, chunk) in self.chunks.iter().enumerate() {
            if offset < chunk.len() {
                return (at, offset);
            }
            offset -= chunk.len();
        }
        (self.chunks.len(), offset)
    }
}

impl<T: Copy> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        Self {
            len: values.len(),
            chunks: values.chunks(MAX_CHUNK / 2).map(<[T]>::to_vec).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_vector(
            start in 0..5000_usize,
            steps in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 0..200),
        ) {
            let mut vector: Vec<usize> = (0..start).collect();
            let mut list: List<usize> = vector.iter().copied().collect();
            for (number, (insert, index)) in steps.into_iter().enumerate() {
                if insert {
                    let at = index.index(vector.len() + 1);
                    vector.insert(at, number);
                    list.insert(at, number);
                } else if !vector.is_empty() {
                    let at = index.index(vector.len());
                    vector.remove(at);
                    list.remove(at);
                }
                prop_assert_eq!(list.len(), vector.len());
            }
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), vector.clone());
            for (index, value) in vector.iter().enumerate() {
                prop_assert_eq!(list.get(index), Some(*value));
            }
        }
    }
}
