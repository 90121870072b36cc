//! Programs (NFA simulation) for patterns with large automata.
//!
//! A byte automaton expands every Unicode class for each repetition; `[\pL]{1,900}` takes tens of megabytes.
//! Here a class is one instruction, as in Go, and the search runs all threads in lockstep in priority order:
//! slower by a constant factor, and linear in the product of text and program size.

use std::collections::HashMap;
use std::ops::Range;

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look};

/// The maximum number of instructions. Go's limit is six times as high; a search costs text size times
/// instructions.
const MAX_INSTRUCTIONS: usize = 500_000;

/// An instruction.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One character.
    Char(char, u32),
    /// One character of a class.
    Class(u32, u32),
    /// Both branches, the first one with priority.
    Split(u32, u32),
    /// Continues if the assertion is true.
    Look(Look, u32),
    Match,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    classes: Vec<Box<[(char, char)]>>,
    start: u32,
    /// True if a match must start at the beginning of the text.
    is_anchored: bool,
}

/// A pending continuation of the compiler. Programs are built backwards: `next` is the following
/// instruction.
enum Frame<'h> {
    Compile(&'h Hir),
    /// A copy of a repeated expression, followed by the remaining ones; `skip` is the instruction after all
    /// of them.
    Copies {
        sub: &'h Hir,
        left: u32,
        skip: Option<(u32, bool)>,
    },
    /// The body of a loop, which ends at the instruction `at`.
    Loop {
        at: u32,
        after: u32,
        greedy: bool,
        skip: Skip,
    },
    /// One of several alternatives, compiled in reverse order.
    Alternative {
        rest: &'h [Hir],
        after: u32,
        last: Option<u32>,
    },
}

/// How the body of a loop may be skipped.
#[derive(Clone, Copy, PartialEq)]
enum Skip {
    /// Never: at least one iteration.
    Never,
    /// The loop starts with the branch that follows each iteration.
    Loop,
    /// A separate branch: an empty match of the first iteration has priority over none.
    Apart,
}

struct Compiler<'h> {
    steps: Vec<Step>,
    classes: Vec<Box<[(char, char)]>>,
    /// Class indexes by their address in the tree: repeated expressions are shared.
    known: HashMap<*const ClassUnicode, u32>,
    next: u32,
    open: Vec<Frame<'h>>,
}

impl Program {
    /// Compiles a tree. `None` if the program is too large.
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

    /// The memory size in bytes.
    pub(super) fn memory(&self) -> usize {
        let classes = self.classes.iter().map(|class| size_of_val(&**class));
        self.steps.len() * size_of::<Step>() + classes.sum::<usize>()
    }

    /// Returns true if the pattern matches anywhere.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.search(text, 0, true).is_some()
    }

    /// The leftmost match at or after a position, by the priority of the pattern.
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        self.search(text, from, false)
    }

    /// Successive matches, up to a maximum. An empty match adjacent to the previous one is skipped.
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
            // A later start has a lower priority.
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
                        // The remaining threads have a lower priority.
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

    /// Adds all instructions that are reachable without consuming a character, in priority order.
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
            // A byte class is always ASCII here.
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
                    // The optional copies first, then the required ones before them.
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

/// The active threads of a search, in priority order.
struct Threads {
    order: Vec<u32>,
    /// The start of each thread's match.
    begins: Vec<usize>,
    /// The iteration in which an instruction was last visited.
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

    /// Returns true on the first visit.
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

/// Returns true if an assertion is true at a position. Word characters are ASCII.
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
        // Go's syntax has no other assertions.
        _ => false,
    }
}
