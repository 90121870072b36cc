//! Unified diffs of two texts, in go-difflib's format.
//!
//! UPSTREAM: apimachinery pkg/util/diff/diff.go, github.com/pmezard/go-difflib difflib/difflib.go

use std::collections::HashMap;
use std::fmt::Write as _;

/// Context lines around a change.
const CONTEXT: usize = 3;
/// Longer texts are not compared, since the time is quadratic.
const MAX_LINES: usize = 40_000;

/// A matching block: its start in each text, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match(usize, usize, usize);

/// A range of both texts, equal or different.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    same: bool,
    old: (usize, usize),
    new: (usize, usize),
}

/// The unified diff of two texts; empty if they are equal.
pub(crate) fn unified_diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        return out;
    }
    for group in groups(stretches(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "@@ -{} +{} @@",
            range(first.old.0, last.old.1),
            range(first.new.0, last.new.1)
        );
        for stretch in &group {
            let mut write = |mark: char, lines: &[&str]| {
                for line in lines {
                    out.push(mark);
                    out.push_str(line);
                    out.push('\n');
                }
            };
            let (removed, added) = (
                old.get(stretch.old.0..stretch.old.1).unwrap_or_default(),
                new.get(stretch.new.0..stretch.new.1).unwrap_or_default(),
            );
            if stretch.same {
                write(' ', removed);
            } else {
                write('-', removed);
                write('+', added);
            }
        }
    }
    out
}

/// A range in unified format: lines count from 1, and an empty range starts at the previous line.
fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// The positions of the lines of `new`, without very frequent lines.
fn places<'l>(new: &[&'l str]) -> HashMap<&'l str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if new.len() >= 200 {
        let most = new.len() / 100 + 1;
        places.retain(|_, found| found.len() <= most);
    }
    places
}

fn stretches(old: &[&str], new: &[&str]) -> Vec<Stretch> {
    let places = places(new);
    let mut matches = Vec::new();
    let mut open = vec![(0, old.len(), 0, new.len())];
    while let Some((old_start, old_end, new_start, new_end)) = open.pop() {
        let (in_old, in_new) = ((old_start, old_end), (new_start, new_end));
        let found = longest(old, new, &places, in_old, in_new);
        let Match(i, j, length) = found;
        if length == 0 {
            continue;
        }
        matches.push(found);
        if old_start < i && new_start < j {
            open.push((old_start, i, new_start, j));
        }
        if i + length < old_end && j + length < new_end {
            open.push((i + length, old_end, j + length, new_end));
        }
    }
    matches.sort_unstable();
    matches.push(Match(old.len(), new.len(), 0));
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for Match(old_start, new_start, length) in matches {
        if i < old_start || j < new_start {
            stretches.push(Stretch {
                same: false,
                old: (i, old_start),
                new: (j, new_start),
            });
        }
        (i, j) = (old_start + length, new_start + length);
        if length == 0 {
            continue;
        }
        // Adjacent matches are merged.
        if let Some(last) = stretches.last_mut()
            && last.same
        {
            (last.old.1, last.new.1) = (i, j);
        } else {
            stretches.push(Stretch {
                same: true,
                old: (old_start, i),
                new: (new_start, j),
            });
        }
    }
    stretches
}

/// The longest matching block in two ranges; of several, the first in the old text.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (old_start, old_end): (usize, usize),
    (new_start, new_end): (usize, usize),
) -> Match {
    let mut best = Match(old_start, new_start, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for i in old_start..old_end {
        let mut next = HashMap::new();
        let found = old.get(i).and_then(|line| places.get(line));
        for &j in found.into_iter().flatten() {
            if j < new_start {
                continue;
            }
            if j >= new_end {
                break;
            }
            let before = j.checked_sub(1).and_then(|j| lengths.get(&j));
            let length = before.copied().unwrap_or_default() + 1;
            next.insert(j, length);
            if length > best.2 {
                best = Match(i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    let Match(mut i, mut j, mut length) = best;
    while i > old_start && j > new_start && old.get(i - 1) == new.get(j - 1) {
        (i, j, length) = (i - 1, j - 1, length + 1);
    }
    while i + length < old_end && j + length < new_end && old.get(i + length) == new.get(j + length)
    {
        length += 1;
    }
    Match(i, j, length)
}

/// Groups changes with their context; changes with overlapping context share a group.
fn groups(mut stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    if let Some(first) = stretches.first_mut()
        && first.same
    {
        first.old.0 = first.old.0.max(first.old.1.saturating_sub(CONTEXT));
        first.new.0 = first.new.0.max(first.new.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = stretches.last_mut()
        && last.same
    {
        last.old.1 = last.old.1.min(last.old.0 + CONTEXT);
        last.new.1 = last.new.1.min(last.new.0 + CONTEXT);
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for mut stretch in stretches {
        if stretch.same && stretch.old.1 - stretch.old.0 > 2 * CONTEXT {
            let mut before = stretch;
            before.old.1 = stretch.old.1.min(stretch.old.0 + CONTEXT);
            before.new.1 = stretch.new.1.min(stretch.new.0 + CONTEXT);
            group.push(before);
            groups.push(std::mem::take(&mut group));
            stretch.old.0 = stretch.old.0.max(stretch.old.1.saturating_sub(CONTEXT));
            stretch.new.0 = stretch.new.0.max(stretch.new.1.saturating_sub(CONTEXT));
        }
        group.push(stretch);
    }
    if group.iter().any(|stretch| !stretch.same) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::unified_diff;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(unified_diff("a\nb", "a\nb"), "");
    }

    #[test]
    fn changes_stand_in_three_lines_of_context() {
        let old: Vec<String> = (0..20).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[4] = String::from("x");
        new.insert(16, String::from("y"));
        assert_eq!(
            unified_diff(&old.join("\n"), &new.join("\n")),
            "@@ -2,7 +2,7 @@\n 1\n 2\n 3\n-4\n+x\n 5\n 6\n 7\n\
             @@ -14,6 +14,7 @@\n 13\n 14\n 15\n+y\n 16\n 17\n 18\n"
        );
    }

    #[test]
    fn a_change_of_everything_has_no_context() {
        assert_eq!(unified_diff("a", "b"), "@@ -1 +1 @@\n-a\n+b\n");
    }
}
