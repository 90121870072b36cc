//! Alignment of the elements of two lists.

use serde_json::Value;

/// Fields that identify an element among its siblings, the most specific first.
const KEYS: [&str; 9] = [
    "name",
    "uid",
    "key",
    "mountPath",
    "devicePath",
    "containerPort",
    "port",
    "ip",
    "type",
];

/// Above this number of comparisons, the middle parts of two lists count as entirely different.
const MAX_COMPARISONS: usize = 1_000_000;

/// Ascending pairs of positions: the element of `from` and the same, possibly changed, element of `to`.
pub(super) fn align(from: &[Value], to: &[Value]) -> Vec<(usize, usize)> {
    let key = common_key(from, to);
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    };
    let start = from.iter().zip(to).take_while(|(a, b)| same(a, b)).count();
    let (from_rest, to_rest) = (&from[start..], &to[start..]);
    let ends = from_rest.iter().rev().zip(to_rest.iter().rev());
    let end = ends.take_while(|(a, b)| same(a, b)).count();
    let from_middle = &from_rest[..from_rest.len() - end];
    let to_middle = &to_rest[..to_rest.len() - end];

    let mut pairs: Vec<_> = (0..start).map(|place| (place, place)).collect();
    let middle = longest_common(from_middle, to_middle, same);
    pairs.extend(middle.into_iter().map(|(a, b)| (start + a, start + b)));
    let ends = (1..=end).rev();
    pairs.extend(ends.map(|back| (from.len() - back, to.len() - back)));
    pairs
}

/// The field whose value identifies the elements of both lists.
pub(super) fn common_key(from: &[Value], to: &[Value]) -> Option<&'static str> {
    let tells_apart = |list: &[Value], key: &str| {
        let mut seen = std::collections::HashSet::new();
        list.iter().all(|element| match element.get(key) {
            Some(Value::String(text)) => seen.insert(text.clone()),
            Some(Value::Number(number)) => seen.insert(number.to_string()),
            _ => false,
        })
    };
    let keys = KEYS.into_iter();
    let found = keys
        .into_iter()
        .find(|key| tells_apart(from, key) && tells_apart(to, key));
    found.filter(|_| !from.is_empty() || !to.is_empty())
}

fn longest_common(
    from: &[Value],
    to: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<(usize, usize)> {
    if from.is_empty() || to.is_empty() || from.len().saturating_mul(to.len()) > MAX_COMPARISONS {
        return Vec::new();
    }
    // lengths[i][j]: the length of the longest common subsequence of from[i..] and to[j..].
    let width = to.len() + 1;
    let mut lengths = vec![0_u32; (from.len() + 1) * width];
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            lengths[i * width + j] = if same(&from[i], &to[j]) {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < from.len() && j < to.len() {
        if same(&from[i], &to[j]) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
