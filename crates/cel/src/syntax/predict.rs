//! Predicts which alternative of a choice the input takes.
//!
//! Simulates all alternatives at once, token by token (ANTLR's adaptive LL(*)): first in SLL mode,
//! without the callers, then, on a conflict, in LL mode with them. If no alternative is viable, the
//! last one that reached the end of the rule is chosen; otherwise the decision fails at the current
//! token.
//!
//! UPSTREAM: antlr4-go parser_atn_simulator.go, prediction_mode.go

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::grammar::{Edge, NETWORK, Network, Rule, StateId, StateKind, bit, start};
use super::lexer::{Kind, Token};

/// The maximum number of configurations visited by all predictions for one source. Error messages
/// for realistic sources need a few thousand; each unclosed bracket doubles the number.
const MAX_WORK: u32 = 200_000;

/// A failed decision.
pub(super) enum Undecided {
    /// No viable alternative up to and including this token.
    NoAlternative { offending: usize },
    /// The limit is exceeded.
    TooHard,
}

/// A return address of the callers, innermost first; 0 is the bottom.
type Stack = u32;
const BOTTOM: Stack = 0;

/// A configuration: an alternative in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Config {
    state: StateId,
    alternative: usize,
    stack: Stack,
    /// True once it has left the rule of the decision.
    outside: bool,
}

/// Call stacks, interned.
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

/// Predicts decisions and caches the states.
///
/// Without the callers, a prediction depends only on the decision and the tokens, so sets of
/// configurations are the states of a lazily built automaton.
#[derive(Default)]
pub(super) struct Predictor {
    stacks: Stacks,
    states: Vec<Known>,
    by_configs: HashMap<Vec<Config>, usize>,
    starts: HashMap<(StateId, u8), usize>,
    /// Configurations visited so far.
    work: u32,
}

/// A state of the automaton.
struct Known {
    configs: Vec<Config>,
    edges: HashMap<Kind, Next>,
}

/// A transition of the automaton.
#[derive(Clone, Copy)]
enum Next {
    State(usize),
    Settled(usize),
    Conflict,
    /// No viable alternative; the alternative that had already left the rule, if any.
    Nowhere(Option<usize>),
}

impl Predictor {
    /// The alternative, counted from one, that `tokens[from..]` match at `choice`.
    ///
    /// `callers` are the follow states of the enclosing rules, outermost first.
    pub(super) fn predict(
        &mut self,
        choice: StateId,
        precedence: u8,
        callers: impl Iterator<Item = StateId>,
        tokens: &[Token],
        from: usize,
    ) -> Result<usize, Undecided> {
        let mut state = self.start(choice, precedence);
        let mut at = from;
        loop {
            let token = kind(tokens, at);
            let next = self.next(state, token);
            if self.work >= MAX_WORK {
                return Err(Undecided::TooHard);
            }
            match next {
                Next::Settled(alternative) | Next::Nowhere(Some(alternative)) => {
                    return Ok(alternative);
                }
                Next::Nowhere(None) => return Err(Undecided::NoAlternative { offending: at }),
                Next::Conflict => break,
                Next::State(next) => state = next,
            }
            if token != Kind::Eof {
                at += 1;
            }
        }
        let mut run = Run {
            network: &NETWORK,
            stacks: Stacks::default(),
            full: true,
            work: self.work,
            pending: Vec::new(),
        };
        let stack = callers.fold(BOTTOM, |below, follow| run.stacks.push(follow, below));
        let result = run.simulate(choice, precedence, stack, tokens, from);
        self.work = run.work;
        result
    }

    fn run<T>(&mut self, with: impl FnOnce(&mut Run) -> T) -> T {
        let stacks = std::mem::take(&mut self.stacks);
        let mut run = Run {
            network: &NETWORK,
            stacks,
            full: false,
            work: self.work,
            pending: Vec::new(),
        };
        let result = with(&mut run);
        self.stacks = run.stacks;
        self.work = run.work;
        result
    }

    fn start(&mut self, choice: StateId, precedence: u8) -> usize {
        if let Some(state) = self.starts.get(&(choice, precedence)) {
            return *state;
        }
        let configs = self.run(|run| run.start(choice, precedence, BOTTOM));
        let state = self.intern(configs);
        self.starts.insert((choice, precedence), state);
        state
    }

    fn intern(&mut self, mut configs: Vec<Config>) -> usize {
        configs.sort_unstable();
        configs.dedup();
        if let Some(state) = self.by_configs.get(&configs) {
            return *state;
        }
        self.states.push(Known {
            configs: configs.clone(),
            edges: HashMap::new(),
        });
        self.by_configs.insert(configs, self.states.len() - 1);
        self.states.len() - 1
    }

    fn next(&mut self, state: usize, token: Kind) -> Next {
        let Some(known) = self.states.get(state) else {
            return Next::Nowhere(None);
        };
        if let Some(next) = known.edges.get(&token) {
            return *next;
        }
        let configs = known.configs.clone();
        let (reached, decided) = self.run(|run| {
            let reached = run.reach(&configs, token);
            let decided = run.decide(&reached);
            (reached, decided)
        });
        let next = match decided {
            _ if reached.is_empty() => Next::Nowhere(left(&configs)),
            Some(Outcome::Alternative(alternative)) => Next::Settled(alternative),
            Some(Outcome::Conflict) => Next::Conflict,
            None => Next::State(self.intern(reached)),
        };
        if let Some(known) = self.states.get_mut(state) {
            known.edges.insert(token, next);
        }
        next
    }
}

/// The first alternative that has left the rule of the decision.
fn left(configs: &[Config]) -> Option<usize> {
    let outside = configs.iter().filter(|c| {
        c.outside || (c.stack == BOTTOM && NETWORK.state(c.state).kind == StateKind::RuleStop)
    });
    outside.map(|c| c.alternative).min()
}

fn kind(tokens: &[Token], at: usize) -> Kind {
    tokens.get(at).map_or(Kind::Eof, |t| t.kind)
}

enum Outcome {
    Alternative(usize),
    Conflict,
}

struct Run {
    network: &'static Network,
    stacks: Stacks,
    /// True if the callers are known (LL mode).
    full: bool,
    /// Configurations visited so far.
    work: u32,
    /// Configurations to visit, the next one last; kept for its allocation.
    pending: Vec<(Config, Option<(u8, i32)>)>,
}

impl Run {
    /// The start configurations of each alternative.
    fn start(&mut self, choice: StateId, precedence: u8, stack: Stack) -> Vec<Config> {
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
        if matches!(
            self.network.state(choice).rule,
            Rule::Relation | Rule::Calc | Rule::Member
        ) {
            // An operator binds to this rule rather than to a caller of the same rule.
            let here: BTreeSet<_> = configs
                .iter()
                .filter(|c| c.alternative == 1)
                .map(|c| (c.state, c.stack))
                .collect();
            configs.retain(|c| c.alternative == 1 || !here.contains(&(c.state, c.stack)));
        }
        configs
    }

    /// Predicts in LL mode, with the callers.
    fn simulate(
        &mut self,
        choice: StateId,
        precedence: u8,
        stack: Stack,
        tokens: &[Token],
        from: usize,
    ) -> Result<usize, Undecided> {
        let mut configs = self.start(choice, precedence, stack);
        let mut at = from;
        loop {
            let token = kind(tokens, at);
            let reached = self.reach(&configs, token);
            if self.work >= MAX_WORK {
                return Err(Undecided::TooHard);
            }
            if reached.is_empty() {
                // Ambiguous up to here: the first alternative is chosen.
                let alive = configs.iter().map(|c| c.alternative).min();
                return match left(&configs).or_else(|| alive.filter(|_| at > from)) {
                    Some(alternative) => Ok(alternative),
                    None => Err(Undecided::NoAlternative { offending: at }),
                };
            }
            match self.decide(&reached) {
                Some(Outcome::Alternative(alternative)) => return Ok(alternative),
                Some(Outcome::Conflict) => return Ok(1),
                None => configs = reached,
            }
            if token != Kind::Eof {
                at += 1;
            }
        }
    }

    /// The outcome on which all configurations agree, if they do.
    fn decide(&self, configs: &[Config]) -> Option<Outcome> {
        let first = configs.first()?.alternative;
        if configs.iter().all(|c| c.alternative == first) {
            return Some(Outcome::Alternative(first));
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
                (Some(only), None) => Some(Outcome::Alternative(*only)),
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
                // The whole input is consumed: only configurations at the end match.
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

    /// Computes the closure: all configurations reachable without consuming a token, depth first.
    ///
    /// `precedence` is the current one and the call depth since, as predicates only apply in the
    /// rule of the decision.
    fn close(
        &mut self,
        config: Config,
        precedence: Option<(u8, i32)>,
        out: &mut Vec<Config>,
        seen: &mut BTreeSet<(StateId, usize, Stack)>,
    ) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.push((config, precedence));
        while let Some((config, precedence)) = pending.pop() {
            self.work = self.work.saturating_add(1);
            if self.work >= MAX_WORK {
                pending.clear();
            } else if seen.insert((config.state, config.alternative, config.stack)) {
                let first = pending.len();
                self.leads(config, precedence, &mut pending, out);
                // The stack pops the last one first.
                if let Some(added) = pending.get_mut(first..) {
                    added.reverse();
                }
            }
        }
        self.pending = pending;
    }

    /// Adds the configurations one transition further, and the configuration itself if it waits for
    /// a token.
    fn leads(
        &mut self,
        config: Config,
        precedence: Option<(u8, i32)>,
        pending: &mut Vec<(Config, Option<(u8, i32)>)>,
        out: &mut Vec<Config>,
    ) {
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
                pending.push((next, deeper));
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
                pending.push((next, deeper));
            }
            return;
        }
        for edge in &state.edges {
            let to = |state| Config { state, ..config };
            match edge {
                Edge::Free(state) => pending.push((to(*state), precedence)),
                Edge::Precedence(minimum, state) => {
                    if precedence.is_none_or(|(p, depth)| depth != 0 || *minimum >= p) {
                        pending.push((to(*state), precedence));
                    }
                }
                Edge::Call { rule, follow, .. } => {
                    let stack = self.stacks.push(*follow, config.stack);
                    let next = Config {
                        stack,
                        ..to(start(*rule))
                    };
                    pending.push((next, precedence.map(|(p, depth)| (p, depth + 1))));
                }
                // A state with a token transition has no other transitions.
                Edge::Tokens(..) => out.push(config),
            }
        }
    }
}
