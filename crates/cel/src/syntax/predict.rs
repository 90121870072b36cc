//! Predicts which alternative of a choice the input takes.
//!
//! Simulates all alternatives at once, token by token: first without regard to
//! the callers, then, if that leaves a conflict, with them. When no alternative
//! survives, the last one that had already left the rule wins, and otherwise
//! the choice fails at the token reached.
//!
//! UPSTREAM: antlr4-go parser_atn_simulator.go, prediction_mode.go

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::grammar::{Edge, NETWORK, Network, StateId, StateKind, bit, start};
use super::lexer::{Kind, Token};

/// The choice failed: no alternative fits up to and including this token.
pub(super) struct NoAlternative {
    pub(super) offending: usize,
}

/// A return address of the callers, innermost first; 0 is the bottom.
type Stack = u32;
const BOTTOM: Stack = 0;

/// One alternative in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Config {
    state: StateId,
    alternative: usize,
    stack: Stack,
    /// Whether it has left the rule of the choice.
    outside: bool,
}

/// Call stacks, each kept once.
#[derive(Default)]
struct Stacks {
    frames: Vec<(StateId, Stack)>,
    ids: HashMap<(StateId, Stack), Stack>,
}

impl Stacks {
    fn push(&mut self, follow: StateId, below: Stack) -> Stack {
        *self.ids.entry((follow, below)).or_insert_with(|| {
            self.frames.push((follow, below));
            self.frames.len() as Stack
        })
    }

    fn pop(&self, stack: Stack) -> Option<(StateId, Stack)> {
        self.frames.get((stack as usize).checked_sub(1)?).copied()
    }
}

/// Remembers choices that one token settles.
#[derive(Default)]
pub(super) struct Predictor {
    settled: HashMap<(StateId, u8, Kind), usize>,
}

impl Predictor {
    /// The alternative, counted from one, that `tokens[from..]` takes at `choice`.
    ///
    /// `callers` are the states the enclosing rules go on with, outermost first.
    pub(super) fn predict(
        &mut self,
        choice: StateId,
        precedence: u8,
        callers: &[StateId],
        tokens: &[Token],
        from: usize,
    ) -> Result<usize, NoAlternative> {
        let first = kind(tokens, from);
        if let Some(alternative) = self.settled.get(&(choice, precedence, first)) {
            return Ok(*alternative);
        }
        let mut run = Run {
            network: &NETWORK,
            stacks: Stacks::default(),
            tokens,
            full: false,
        };
        match run.simulate(choice, precedence, BOTTOM, from)? {
            Outcome::Alternative(alternative, at) => {
                if at == from {
                    self.settled
                        .insert((choice, precedence, first), alternative);
                }
                Ok(alternative)
            }
            Outcome::Conflict => {
                run.full = true;
                let stack = callers
                    .iter()
                    .fold(BOTTOM, |below, f| run.stacks.push(*f, below));
                match run.simulate(choice, precedence, stack, from)? {
                    Outcome::Alternative(alternative, _) => Ok(alternative),
                    Outcome::Conflict => Ok(1),
                }
            }
        }
    }
}

fn kind(tokens: &[Token], at: usize) -> Kind {
    tokens.get(at).map_or(Kind::Eof, |t| t.kind)
}

enum Outcome {
    /// The alternative, and the token that settled it.
    Alternative(usize, usize),
    Conflict,
}

struct Run<'t> {
    network: &'static Network,
    stacks: Stacks,
    tokens: &'t [Token],
    /// Whether the callers are known.
    full: bool,
}

impl Run<'_> {
    fn simulate(
        &mut self,
        choice: StateId,
        precedence: u8,
        stack: Stack,
        from: usize,
    ) -> Result<Outcome, NoAlternative> {
        let mut configs = Vec::new();
        let mut seen = BTreeSet::new();
        for (nth, edge) in self.network.state(choice).edges.iter().enumerate() {
            if let Edge::Free(to) = edge {
                let first = Config {
                    state: *to,
                    alternative: nth + 1,
                    stack,
                    outside: false,
                };
                self.close(first, Some((precedence, 0)), &mut configs, &mut seen);
            }
        }
        let mut at = from;
        loop {
            let token = kind(self.tokens, at);
            let reached = self.reach(&configs, token);
            if reached.is_empty() {
                let left = configs.iter().filter(|c| {
                    c.outside
                        || (c.stack == BOTTOM
                            && self.network.state(c.state).kind == StateKind::RuleStop)
                });
                return match left.map(|c| c.alternative).min() {
                    Some(alternative) => Ok(Outcome::Alternative(alternative, from + 1)),
                    None => Err(NoAlternative { offending: at }),
                };
            }
            if let Some(outcome) = self.decide(&reached, at) {
                return Ok(outcome);
            }
            configs = reached;
            if token != Kind::Eof {
                at += 1;
            }
        }
    }

    /// What the configurations agree on, if they do.
    fn decide(&self, configs: &[Config], at: usize) -> Option<Outcome> {
        let first = configs.first()?.alternative;
        if configs.iter().all(|c| c.alternative == first) {
            return Some(Outcome::Alternative(first, at));
        }
        let mut places: BTreeMap<(StateId, usize), BTreeSet<Stack>> = BTreeMap::new();
        for c in configs {
            places
                .entry((c.state, c.alternative))
                .or_default()
                .insert(c.stack);
        }
        let mut subsets: BTreeMap<(StateId, &BTreeSet<Stack>), BTreeSet<usize>> = BTreeMap::new();
        let mut by_state: BTreeMap<StateId, BTreeSet<usize>> = BTreeMap::new();
        for ((state, alternative), stacks) in &places {
            subsets
                .entry((*state, stacks))
                .or_default()
                .insert(*alternative);
            by_state.entry(*state).or_default().insert(*alternative);
        }
        if self.full {
            let viable: BTreeSet<_> = subsets.values().filter_map(BTreeSet::first).collect();
            let mut viable = viable.into_iter();
            return match (viable.next(), viable.next()) {
                (Some(only), None) => Some(Outcome::Alternative(*only, at)),
                _ => None,
            };
        }
        let stopped = configs
            .iter()
            .all(|c| self.network.state(c.state).kind == StateKind::RuleStop);
        let conflict =
            subsets.values().any(|s| s.len() > 1) && !by_state.values().any(|s| s.len() == 1);
        (stopped || conflict).then_some(Outcome::Conflict)
    }

    fn reach(&mut self, configs: &[Config], token: Kind) -> Vec<Config> {
        let mut reached = Vec::new();
        let mut seen = BTreeSet::new();
        for config in configs {
            let state = self.network.state(config.state);
            if state.kind == StateKind::RuleStop {
                // The whole input is read: only the end may follow.
                if token == Kind::Eof && !reached.contains(config) {
                    reached.push(*config);
                }
                continue;
            }
            for edge in &state.edges {
                if let Edge::Tokens(set, to) = edge
                    && set & bit(token) != 0
                {
                    self.close(
                        Config {
                            state: *to,
                            ..*config
                        },
                        None,
                        &mut reached,
                        &mut seen,
                    );
                }
            }
        }
        if token == Kind::Eof {
            reached.retain(|c| self.network.state(c.state).kind == StateKind::RuleStop);
        }
        reached
    }

    /// Adds every place that can be reached without reading a token.
    ///
    /// `precedence` is the current one and how far calls have gone in since, so
    /// that conditions count only in the rule the choice belongs to.
    fn close(
        &mut self,
        config: Config,
        precedence: Option<(u8, i32)>,
        out: &mut Vec<Config>,
        seen: &mut BTreeSet<(StateId, usize, Stack)>,
    ) {
        if !seen.insert((config.state, config.alternative, config.stack)) {
            return;
        }
        let state = self.network.state(config.state);
        if state.kind == StateKind::RuleStop {
            let deeper = precedence.map(|(p, depth)| (p, depth - 1));
            if let Some((follow, below)) = self.stacks.pop(config.stack) {
                let outside = config.outside || precedence.is_some_and(|(_, d)| d <= 0);
                let next = Config {
                    state: follow,
                    stack: below,
                    outside,
                    ..config
                };
                self.close(next, deeper, out, seen);
                return;
            }
            let follows = self.network.follows.get(state.rule as usize);
            if self.full || follows.is_none_or(Vec::is_empty) {
                out.push(config);
                return;
            }
            for follow in follows.into_iter().flatten() {
                let next = Config {
                    state: *follow,
                    outside: true,
                    ..config
                };
                self.close(next, deeper, out, seen);
            }
            return;
        }
        let mut waits = false;
        for edge in &state.edges {
            match edge {
                Edge::Free(to) => {
                    self.close(
                        Config {
                            state: *to,
                            ..config
                        },
                        precedence,
                        out,
                        seen,
                    );
                }
                Edge::Precedence(minimum, to) => {
                    if precedence.is_none_or(|(p, depth)| depth != 0 || *minimum >= p) {
                        self.close(
                            Config {
                                state: *to,
                                ..config
                            },
                            precedence,
                            out,
                            seen,
                        );
                    }
                }
                Edge::Call { rule, follow, .. } => {
                    let stack = self.stacks.push(*follow, config.stack);
                    let next = Config {
                        state: start(*rule),
                        stack,
                        ..config
                    };
                    let deeper = precedence.map(|(p, depth)| (p, depth + 1));
                    self.close(next, deeper, out, seen);
                }
                Edge::Tokens(..) => waits = true,
            }
        }
        if waits {
            out.push(config);
        }
    }
}
