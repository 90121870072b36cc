//! Patterns as small programs, for those whose automaton would be large.
//!
//! An automaton over bytes spells out every Unicode class each time it is repeated; `[\pL]{1,900}` takes
//! tens of megabytes. Here a class is one instruction, as in Go, and the search runs all alternatives at
//! once in the order of their preference: slower by a constant, and linear in text times program.

use std::collections::HashMap;
use std::ops::Range;

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look};

/// The most instructions. Go takes six times as many; they cost what text times instructions costs.
const MAX_INSTRUCTIONS: usize = 500_000;

/// One step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One character.
    Char(char, u32),
    /// One character out of a class.
    Class(u32, u32),
    /// Both ways, the first one preferred.
    Split(u32, u32),
    /// Goes on where this holds.
    Look(Look, u32),
    Match,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    classes: Vec<Box<[(char, char)]>>,
    start: u32,
    /// Matches at the start of a text only.
    is_anchored: bool,
}

/// A pending continuation of the compiler. Programs are built from the end: `next` is the step that follows.
enum Frame<'h> {
    Compile(&'h Hir),
    /// A copy of something repeated, before as many as are left; `skip` is the step after all of them.
    Copies {
        sub: &'h Hir,
        left: u32,
        skip: Option<(u32, bool)>,
    },
    /// The body of a loop, which ends at the step `at`.
    Loop {
        at: u32,
        after: u32,
        greedy: bool,
        skip: Skip,
    },
    /// One of several alternatives; those before it are left.
    Alternative {
        rest: &'h [Hir],
        after: u32,
        last: Option<u32>,
    },
}

/// The way to skip the body of a loop.
#[derive(Clone, Copy, PartialEq)]
enum Skip {
    /// It is not.
    Never,
    /// The loop begins with the question that follows each round.
    Loop,
    /// There is a question of its own: what matches nothing in the first round is preferred to none.
    Apart,
}

struct Compiler<'h> {
    steps: Vec<Step>,
    classes: Vec<Box<[(char, char)]>>,
    /// The numbers of the classes by their address in the tree: what is repeated is there once.
    known: HashMap<*const ClassUnicode, u32>,
    next: u32,
    open: Vec<Frame<'h>>,
}

impl Program {
    /// Compiles a tree. None if it would be too large.
    pub(super) fn new(hir: &Hir) -> Option<Self> {
        let mut compiler = Compiler {
            steps: vec![Step::Match],
            classes: Vec::new(),
            known: HashMap::new(),
            next: 0,
            open: vec![Frame::Compile(hir)],
        };
        while let Some(frame) = compiler.open.pop() {
            compiler.go_on(frame)?;
        }
        let Compiler {
            mut steps,
            classes,
            next: start,
            ..
        } = compiler;
        steps.shrink_to_fit();
        Some(Self {
            steps,
            classes,
            start,
            is_anchored: hir.properties().look_set_prefix().contains(Look::Start),
        })
    }

    /// Bytes it takes.
    pub(super) fn memory(&self) -> usize {
        let classes = self.classes.iter().map(|class| size_of_val(&**class));
        self.steps.len() * size_of::<Step>() + classes.sum::<usize>()
    }

    /// Returns true if it matches anywhere.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.search(text, 0, true).is_some()
    }

    /// The leftmost match at or after a place, with the first choice of the pattern.
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        self.search(text, from, false)
    }

    /// Successive matches, up to a maximum. An empty match directly after another does not count.
    pub(super) fn find_all<'t>(&self, text: &'t str, limit: usize) -> Vec<&'t str> {
        let mut found = Vec::new();
        let (mut from, mut last) = (0, None);
        while found.len() < limit
            && let Some(range) = self.find(text, from)
        {
            if !(range.is_empty() && last == Some(range.end)) {
                found.extend(text.get(range.clone()));
            }
            last = Some(range.end);
            from = range.end;
            if range.is_empty() {
                let Some(c) = text.get(from..).and_then(|rest| rest.chars().next()) else {
                    break;
                };
                from += c.len_utf8();
            }
        }
        found
    }

    fn search(&self, text: &str, from: usize, any: bool) -> Option<Range<usize>> {
        let mut now = Threads::new(self.steps.len());
        let mut then = Threads::new(self.steps.len());
        let mut stack = Vec::new();
        let mut found = None;
        let mut at = from;
        loop {
            // Whatever starts later is worse than what has started.
            if found.is_none() && !(self.is_anchored && at > 0) {
                self.follow(text, at, self.start, at, &mut now, &mut stack);
            }
            if now.order.is_empty() && (found.is_some() || self.is_anchored) {
                return found;
            }
            let c = text.get(at..).and_then(|rest| rest.chars().next());
            let after = at + c.map_or(0, char::len_utf8);
            for &step in &now.order {
                let begin = now.begins[step as usize];
                let next = match (self.steps[step as usize], c) {
                    (Step::Match, _) => {
                        found = Some(begin..at);
                        // The rest is preferred less.
                        break;
                    }
                    (Step::Char(wanted, next), Some(c)) if wanted == c => next,
                    (Step::Class(class, next), Some(c)) if self.is_in(class, c) => next,
                    _ => continue,
                };
                self.follow(text, after, next, begin, &mut then, &mut stack);
            }
            if any && found.is_some() || c.is_none() {
                return found;
            }
            at = after;
            std::mem::swap(&mut now, &mut then);
            then.clear();
        }
    }

    fn is_in(&self, class: u32, c: char) -> bool {
        let ranges = &self.classes[class as usize];
        let at = ranges.partition_point(|&(_, end)| end < c);
        ranges.get(at).is_some_and(|&(start, _)| start <= c)
    }

    /// Adds all steps that are reached without reading, in the order of preference.
    fn follow(
        &self,
        text: &str,
        at: usize,
        step: u32,
        begin: usize,
        threads: &mut Threads,
        stack: &mut Vec<u32>,
    ) {
        stack.push(step);
        while let Some(step) = stack.pop() {
            if !threads.visit(step) {
                continue;
            }
            match self.steps[step as usize] {
                Step::Split(first, second) => {
                    stack.push(second);
                    stack.push(first);
                }
                Step::Look(look, next) => {
                    if holds(look, text, at) {
                        stack.push(next);
                    }
                }
                Step::Char(..) | Step::Class(..) | Step::Match => {
                    threads.begins[step as usize] = begin;
                    threads.order.push(step);
                }
            }
        }
    }
}

impl<'h> Compiler<'h> {
    fn add(&mut self, step: Step) -> Option<u32> {
        let at = u32::try_from(self.steps.len()).ok()?;
        if self.steps.len() >= MAX_INSTRUCTIONS {
            return None;
        }
        self.steps.push(step);
        Some(at)
    }

    fn split(&mut self, first: u32, second: u32, greedy: bool) -> Option<u32> {
        self.add(match greedy {
            true => Step::Split(first, second),
            false => Step::Split(second, first),
        })
    }

    fn go_on(&mut self, frame: Frame<'h>) -> Option<()> {
        match frame {
            Frame::Compile(hir) => self.compile(hir)?,
            Frame::Copies { sub, left, skip } => {
                if let Some((after, greedy)) = skip {
                    self.next = self.split(self.next, after, greedy)?;
                }
                if left > 0 {
                    let left = left - 1;
                    self.open.push(Frame::Copies { sub, left, skip });
                    self.open.push(Frame::Compile(sub));
                }
            }
            Frame::Loop {
                at,
                after,
                greedy,
                skip,
            } => {
                let body = self.next;
                self.steps[at as usize] = match greedy {
                    true => Step::Split(body, after),
                    false => Step::Split(after, body),
                };
                self.next = match skip {
                    Skip::Never => body,
                    Skip::Loop => at,
                    Skip::Apart => self.split(body, after, greedy)?,
                };
            }
            Frame::Alternative { rest, after, last } => {
                let start = match last {
                    None => self.next,
                    Some(last) => self.split(self.next, last, true)?,
                };
                self.next = start;
                if let Some((previous, rest)) = rest.split_last() {
                    self.open.push(Frame::Alternative {
                        rest,
                        after,
                        last: Some(start),
                    });
                    self.next = after;
                    self.open.push(Frame::Compile(previous));
                }
            }
        }
        Some(())
    }

    fn compile(&mut self, hir: &'h Hir) -> Option<()> {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => {
                for c in std::str::from_utf8(&literal.0).ok()?.chars().rev() {
                    self.next = self.add(Step::Char(c, self.next))?;
                }
            }
            HirKind::Class(Class::Unicode(class)) => {
                let number = self.class(class)?;
                self.next = self.add(Step::Class(number, self.next))?;
            }
            // A class of bytes is one of ASCII here.
            HirKind::Class(Class::Bytes(class)) => {
                let ranges: Box<[(char, char)]> = class
                    .ranges()
                    .iter()
                    .map(|range| (char::from(range.start()), char::from(range.end())))
                    .collect();
                let number = u32::try_from(self.classes.len()).ok()?;
                self.classes.push(ranges);
                self.next = self.add(Step::Class(number, self.next))?;
            }
            HirKind::Look(look) => self.next = self.add(Step::Look(*look, self.next))?,
            HirKind::Capture(capture) => self.open.push(Frame::Compile(&capture.sub)),
            HirKind::Concat(parts) => {
                self.open.extend(parts.iter().map(Frame::Compile));
            }
            HirKind::Alternation(parts) => {
                let (last, rest) = parts.split_last()?;
                let after = self.next;
                self.open.push(Frame::Alternative {
                    rest,
                    after,
                    last: None,
                });
                self.open.push(Frame::Compile(last));
            }
            HirKind::Repetition(repetition) => {
                let (sub, greedy, after) = (&*repetition.sub, repetition.greedy, self.next);
                let min = repetition.min;
                let copies = |left| Frame::Copies {
                    sub,
                    left,
                    skip: None,
                };
                match repetition.max {
                    // First those that may be left out, then those before them.
                    Some(max) => {
                        self.open.push(copies(min));
                        let optional = max.saturating_sub(min);
                        if optional > 0 {
                            self.open.push(Frame::Copies {
                                sub,
                                left: optional - 1,
                                skip: Some((after, greedy)),
                            });
                            self.open.push(Frame::Compile(sub));
                        }
                    }
                    None => {
                        self.open.push(copies(min.saturating_sub(1)));
                        let at = self.add(Step::Match)?;
                        self.open.push(Frame::Loop {
                            at,
                            after,
                            greedy,
                            skip: match sub.properties().minimum_len() {
                                _ if min > 0 => Skip::Never,
                                Some(0) => Skip::Apart,
                                _ => Skip::Loop,
                            },
                        });
                        self.next = at;
                        self.open.push(Frame::Compile(sub));
                    }
                }
            }
        }
        Some(())
    }

    fn class(&mut self, class: &'h ClassUnicode) -> Option<u32> {
        if let Some(&number) = self.known.get(&std::ptr::from_ref(class)) {
            return Some(number);
        }
        let number = u32::try_from(self.classes.len()).ok()?;
        let ranges = class.ranges().iter();
        let ranges = ranges.map(|range| (range.start(), range.end())).collect();
        self.classes.push(ranges);
        self.known.insert(std::ptr::from_ref(class), number);
        Some(number)
    }
}

/// The steps at which a search is at a time, in the order of preference.
struct Threads {
    order: Vec<u32>,
    /// The start of a step's match.
    begins: Vec<usize>,
    /// In which round a step was visited last.
    visited: Vec<u32>,
    round: u32,
}

impl Threads {
    fn new(steps: usize) -> Self {
        Self {
            order: Vec::new(),
            begins: vec![0; steps],
            visited: vec![0; steps],
            round: 1,
        }
    }

    /// Returns true the first time.
    fn visit(&mut self, step: u32) -> bool {
        let visited = &mut self.visited[step as usize];
        std::mem::replace(visited, self.round) != self.round
    }

    fn clear(&mut self) {
        self.order.clear();
        if self.round == u32::MAX {
            self.visited.fill(0);
            self.round = 0;
        }
        self.round += 1;
    }
}

/// Returns true if an assertion holds at a place. Words are those of ASCII.
fn holds(look: Look, text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied();
    let after = bytes.get(at).copied();
    let is_word =
        |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_');
    match look {
        Look::Start => before.is_none(),
        Look::End => after.is_none(),
        Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
        Look::EndLF => after.is_none_or(|byte| byte == b'\n'),
        Look::WordAscii => is_word(before) != is_word(after),
        Look::WordAsciiNegate => is_word(before) == is_word(after),
        // Nothing in Go's syntax becomes one of the others.
        _ => false,
    }
}
