//! The grammar as data: rules, and the transition network built from them.
//!
//! The network has the same shape as ANTLR's, because the listed expected tokens depend on it.
//!
//! UPSTREAM: cel-go parser/gen/CEL.g4

use std::sync::LazyLock;

use super::lexer::Kind;

/// A set of token kinds; [`EPSILON`] means that the end of the rule is reachable.
pub(super) type TokenSet = u64;
pub(super) const EPSILON: TokenSet = 1 << 63;

pub(super) const fn bit(kind: Kind) -> TokenSet {
    1 << kind as u8
}

/// The rules of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    FieldInit,
    OptField,
    MapInit,
    EscapeIdent,
    OptExpr,
    Literal,
}

pub(super) const RULES: usize = 17;

/// The notation of a rule.
enum Spec {
    /// One token.
    T(Kind),
    /// One token out of several.
    S(TokenSet),
    /// Another rule, with a precedence.
    R(Rule, u8),
    /// Continue only if the current precedence is at most this.
    P(u8),
    /// Optional.
    Opt(&'static [Self]),
    /// Zero or more times, decided by the next token.
    Star1(&'static [Self]),
    /// Zero or more times, decided by prediction; with several alternatives.
    Star(&'static [&'static [Self]]),
    /// One or more times, decided by the next token.
    Plus1(&'static [Self]),
    /// One or more times, decided by prediction.
    Plus(&'static [Self]),
    /// Alternatives, decided by prediction.
    Alt(&'static [&'static [Self]]),
    /// Alternatives, decided by the next token.
    Alt1(&'static [&'static [Self]]),
}

use Kind as K;
use Spec::{Alt, Alt1, Opt, P, Plus, Plus1, R, S, Star, Star1, T};

const RELATIONS: TokenSet = bit(K::Less)
    | bit(K::LessEquals)
    | bit(K::GreaterEquals)
    | bit(K::Greater)
    | bit(K::Equals)
    | bit(K::NotEquals)
    | bit(K::In);
const FACTORS: TokenSet = bit(K::Star) | bit(K::Slash) | bit(K::Percent);
const TERMS: TokenSet = bit(K::Plus) | bit(K::Minus);

/// All rules, in the order of [`Rule`].
static SPECS: [&[Spec]; RULES] = [
    &[R(Rule::Expr, 0), T(K::Eof)],
    &[
        R(Rule::Or, 0),
        Opt(&[
            T(K::Question),
            R(Rule::Or, 0),
            T(K::Colon),
            R(Rule::Expr, 0),
        ]),
    ],
    &[R(Rule::And, 0), Star1(&[T(K::Or), R(Rule::And, 0)])],
    &[
        R(Rule::Relation, 0),
        Star1(&[T(K::And), R(Rule::Relation, 0)]),
    ],
    &[
        R(Rule::Calc, 0),
        Star(&[&[P(1), S(RELATIONS), R(Rule::Relation, 2)]]),
    ],
    &[
        R(Rule::Unary, 0),
        Star(&[
            &[P(2), S(FACTORS), R(Rule::Calc, 3)],
            &[P(1), S(TERMS), R(Rule::Calc, 2)],
        ]),
    ],
    &[Alt(&[
        &[R(Rule::Member, 0)],
        &[Plus1(&[T(K::Exclam)]), R(Rule::Member, 0)],
        &[Plus(&[T(K::Minus)]), R(Rule::Member, 0)],
    ])],
    &[
        R(Rule::Primary, 0),
        Star(&[
            &[
                P(3),
                T(K::Dot),
                Opt(&[T(K::Question)]),
                R(Rule::EscapeIdent, 0),
            ],
            &[
                P(2),
                T(K::Dot),
                T(K::Ident),
                T(K::LParen),
                Opt(&[R(Rule::ExprList, 0)]),
                T(K::RParen),
            ],
            &[
                P(1),
                T(K::LBracket),
                Opt(&[T(K::Question)]),
                R(Rule::Expr, 0),
                T(K::RBracket),
            ],
        ]),
    ],
    &[Alt(&[
        &[Opt(&[T(K::Dot)]), T(K::Ident)],
        &[
            Opt(&[T(K::Dot)]),
            T(K::Ident),
            T(K::LParen),
            Opt(&[R(Rule::ExprList, 0)]),
            T(K::RParen),
        ],
        &[T(K::LParen), R(Rule::Expr, 0), T(K::RParen)],
        &[
            T(K::LBracket),
            Opt(&[R(Rule::ListInit, 0)]),
            Opt(&[T(K::Comma)]),
            T(K::RBracket),
        ],
        &[
            T(K::LBrace),
            Opt(&[R(Rule::MapInit, 0)]),
            Opt(&[T(K::Comma)]),
            T(K::RBrace),
        ],
        &[
            Opt(&[T(K::Dot)]),
            T(K::Ident),
            Star1(&[T(K::Dot), T(K::Ident)]),
            T(K::LBrace),
            Opt(&[R(Rule::FieldInit, 0)]),
            Opt(&[T(K::Comma)]),
            T(K::RBrace),
        ],
        &[R(Rule::Literal, 0)],
    ])],
    &[R(Rule::Expr, 0), Star1(&[T(K::Comma), R(Rule::Expr, 0)])],
    &[
        R(Rule::OptExpr, 0),
        Star(&[&[T(K::Comma), R(Rule::OptExpr, 0)]]),
    ],
    &[
        R(Rule::OptField, 0),
        T(K::Colon),
        R(Rule::Expr, 0),
        Star(&[&[
            T(K::Comma),
            R(Rule::OptField, 0),
            T(K::Colon),
            R(Rule::Expr, 0),
        ]]),
    ],
    &[Opt(&[T(K::Question)]), R(Rule::EscapeIdent, 0)],
    &[
        R(Rule::OptExpr, 0),
        T(K::Colon),
        R(Rule::Expr, 0),
        Star(&[&[
            T(K::Comma),
            R(Rule::OptExpr, 0),
            T(K::Colon),
            R(Rule::Expr, 0),
        ]]),
    ],
    &[Alt1(&[&[T(K::Ident)], &[T(K::EscapedIdent)]])],
    &[Opt(&[T(K::Question)]), R(Rule::Expr, 0)],
    &[Alt(&[
        &[Opt(&[T(K::Minus)]), T(K::Int)],
        &[T(K::Uint)],
        &[Opt(&[T(K::Minus)]), T(K::Float)],
        &[T(K::String)],
        &[T(K::Bytes)],
        &[T(K::True)],
        &[T(K::False)],
        &[T(K::Null)],
    ])],
];

pub(super) type StateId = u16;

/// The role of a state in error recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateKind {
    Basic,
    RuleStop,
    /// A decision; an unexpected token may be skipped.
    Choice,
    /// The end of a loop body; unexpected tokens are skipped up to an expected one.
    LoopBack,
}

/// An outgoing transition of a state.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edge {
    Free(StateId),
    Tokens(TokenSet, StateId),
    Call { rule: Rule, follow: StateId },
    Precedence(u8, StateId),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) rule: Rule,
    pub(super) kind: StateKind,
    pub(super) edges: Vec<Edge>,
}

/// The steps of the interpreter, with their network states.
#[derive(Debug)]
pub(super) enum Step {
    Tokens {
        state: StateId,
        set: TokenSet,
    },
    Call {
        state: StateId,
        rule: Rule,
        precedence: u8,
    },
    Optional {
        state: StateId,
        first: TokenSet,
        body: Vec<Self>,
    },
    /// A loop that runs while the next token is in `first`.
    Star1 {
        entry: StateId,
        back: StateId,
        first: TokenSet,
        body: Vec<Self>,
    },
    /// A loop whose continuation is predicted at `entry`.
    Star {
        entry: StateId,
        back: StateId,
        block: StateId,
        bodies: Vec<Vec<Self>>,
    },
    Plus {
        block: StateId,
        back: StateId,
        first: Option<TokenSet>,
        body: Vec<Self>,
    },
    Choice {
        state: StateId,
        first: Option<Vec<TokenSet>>,
        bodies: Vec<Vec<Self>>,
    },
}

/// The transition network of the whole grammar.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) states: Vec<State>,
    pub(super) bodies: Vec<Vec<Step>>,
    /// For each rule, the follow states of its callers.
    pub(super) follows: Vec<Vec<StateId>>,
    /// For each state, the tokens that can come next within its rule.
    next: Vec<TokenSet>,
}

pub(super) static NETWORK: LazyLock<Network> = LazyLock::new(Network::build);

/// The start state of a rule; the state after it is its end state.
pub(super) fn start(rule: Rule) -> StateId {
    2 * rule as StateId
}

impl Network {
    fn build() -> Self {
        let mut builder = Builder { states: Vec::new() };
        for rule in ALL_RULES {
            builder.state(rule, StateKind::Basic);
            builder.state(rule, StateKind::RuleStop);
        }
        let mut bodies = Vec::new();
        for (rule, spec) in ALL_RULES.into_iter().zip(SPECS) {
            let (body, end) = builder.sequence(rule, spec, start(rule));
            builder.edge(end, Edge::Free(start(rule) + 1));
            bodies.push(body);
        }
        let states = builder.states;
        let mut follows = vec![Vec::new(); RULES];
        for state in &states {
            for edge in &state.edges {
                if let Edge::Call { rule, follow, .. } = edge
                    && let Some(list) = follows.get_mut(*rule as usize)
                {
                    list.push(*follow);
                }
            }
        }
        let mut network = Self {
            states,
            bodies,
            follows,
            next: Vec::new(),
        };
        network.next = (0..network.states.len())
            .map(|s| {
                let mut set = 0;
                network.look(
                    s as StateId,
                    &mut vec![false; network.states.len()],
                    &mut set,
                );
                set
            })
            .collect();
        let firsts = network.next.clone();
        for body in &mut network.bodies {
            fill_first(body, &firsts, &network.states);
        }
        network
    }

    #[expect(clippy::indexing_slicing, reason = "state ids come from the builder")]
    pub(super) fn state(&self, id: StateId) -> &State {
        &self.states[id as usize]
    }

    /// The tokens that can follow `state` within its rule, and [`EPSILON`] if the rule can end.
    #[expect(clippy::indexing_slicing, reason = "state ids come from the builder")]
    pub(super) fn next_tokens(&self, state: StateId) -> TokenSet {
        self.next[state as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "one body for each rule")]
    pub(super) fn body(&self, rule: Rule) -> &[Step] {
        &self.bodies[rule as usize]
    }

    fn look(&self, state: StateId, seen: &mut [bool], set: &mut TokenSet) {
        match seen.get_mut(state as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return,
        }
        if self.state(state).kind == StateKind::RuleStop {
            *set |= EPSILON;
            return;
        }
        for edge in &self.state(state).edges {
            match edge {
                Edge::Free(to) | Edge::Precedence(_, to) => self.look(*to, seen, set),
                Edge::Tokens(tokens, _) => *set |= tokens,
                Edge::Call { rule, follow, .. } => {
                    let mut inner = 0;
                    // A rule is the same for every caller, so it may be visited again.
                    let mut inner_seen = vec![false; self.states.len()];
                    self.look(start(*rule), &mut inner_seen, &mut inner);
                    *set |= inner & !EPSILON;
                    if inner & EPSILON != 0 {
                        self.look(*follow, seen, set);
                    }
                }
            }
        }
    }
}

const ALL_RULES: [Rule; RULES] = [
    Rule::Start,
    Rule::Expr,
    Rule::Or,
    Rule::And,
    Rule::Relation,
    Rule::Calc,
    Rule::Unary,
    Rule::Member,
    Rule::Primary,
    Rule::ExprList,
    Rule::ListInit,
    Rule::FieldInit,
    Rule::OptField,
    Rule::MapInit,
    Rule::EscapeIdent,
    Rule::OptExpr,
    Rule::Literal,
];

/// Computes the first sets of every body decided by the next token.
fn fill_first(steps: &mut [Step], next: &[TokenSet], states: &[State]) {
    // The first set of a body is that of the target state of its alternative.
    let lead = |choice: StateId, nth: usize| {
        let edge = states.get(choice as usize).and_then(|s| s.edges.get(nth));
        match edge {
            Some(Edge::Free(to)) => next.get(*to as usize).copied().unwrap_or(0) & !EPSILON,
            _ => 0,
        }
    };
    for step in steps {
        match step {
            Step::Tokens { .. } | Step::Call { .. } => {}
            Step::Optional { state, first, body } => {
                *first = lead(*state, 0);
                fill_first(body, next, states);
            }
            Step::Star1 {
                entry, first, body, ..
            } => {
                *first = lead(*entry, 0);
                fill_first(body, next, states);
            }
            Step::Star { bodies, .. } => {
                for body in bodies {
                    fill_first(body, next, states);
                }
            }
            Step::Plus {
                block, first, body, ..
            } => {
                if let Some(first) = first {
                    *first = lead(*block, 0);
                }
                fill_first(body, next, states);
            }
            Step::Choice {
                state,
                first,
                bodies,
            } => {
                if let Some(first) = first {
                    for (nth, first) in first.iter_mut().enumerate() {
                        *first = lead(*state, nth);
                    }
                }
                for body in bodies {
                    fill_first(body, next, states);
                }
            }
        }
    }
}

struct Builder {
    states: Vec<State>,
}

impl Builder {
    fn state(&mut self, rule: Rule, kind: StateKind) -> StateId {
        self.states.push(State {
            rule,
            kind,
            edges: Vec::new(),
        });
        (self.states.len() - 1) as StateId
    }

    fn edge(&mut self, from: StateId, edge: Edge) {
        if let Some(state) = self.states.get_mut(from as usize) {
            state.edges.push(edge);
        }
    }

    fn sequence(&mut self, rule: Rule, specs: &[Spec], from: StateId) -> (Vec<Step>, StateId) {
        let mut steps = Vec::new();
        let mut at = from;
        for spec in specs {
            let (step, end) = self.element(rule, spec, at);
            steps.extend(step);
            at = end;
        }
        (steps, at)
    }

    /// A block of alternatives from `choice`, which join in one state.
    fn block(
        &mut self,
        rule: Rule,
        choice: StateId,
        alternatives: &[&[Spec]],
    ) -> (Vec<Vec<Step>>, StateId) {
        let join = self.state(rule, StateKind::Basic);
        let mut bodies = Vec::new();
        for specs in alternatives {
            let begin = self.state(rule, StateKind::Basic);
            self.edge(choice, Edge::Free(begin));
            let (body, end) = self.sequence(rule, specs, begin);
            self.edge(end, Edge::Free(join));
            bodies.push(body);
        }
        (bodies, join)
    }

    fn element(&mut self, rule: Rule, spec: &Spec, from: StateId) -> (Option<Step>, StateId) {
        let left = self.state(rule, StateKind::Basic);
        match spec {
            T(kind) => self.tokens(rule, from, left, bit(*kind)),
            S(set) => self.tokens(rule, from, left, *set),
            R(callee, precedence) => {
                let right = self.state(rule, StateKind::Basic);
                self.edge(from, Edge::Free(left));
                self.edge(
                    left,
                    Edge::Call {
                        rule: *callee,
                        follow: right,
                    },
                );
                let step = Step::Call {
                    state: left,
                    rule: *callee,
                    precedence: *precedence,
                };
                (Some(step), right)
            }
            P(precedence) => {
                let right = self.state(rule, StateKind::Basic);
                self.edge(from, Edge::Free(left));
                self.edge(left, Edge::Precedence(*precedence, right));
                (None, right)
            }
            Opt(specs) => {
                let choice = self.choice(rule, from);
                let (mut bodies, join) = self.block(rule, choice, &[specs]);
                self.edge(choice, Edge::Free(join));
                let body = bodies.pop().unwrap_or_default();
                (
                    Some(Step::Optional {
                        state: choice,
                        first: 0,
                        body,
                    }),
                    join,
                )
            }
            Alt(alternatives) | Alt1(alternatives) => {
                let choice = self.choice(rule, from);
                let (bodies, join) = self.block(rule, choice, alternatives);
                let first = matches!(spec, Alt1(_)).then(|| vec![0; bodies.len()]);
                (
                    Some(Step::Choice {
                        state: choice,
                        first,
                        bodies,
                    }),
                    join,
                )
            }
            Star1(specs) => {
                let (entry, back, _, mut bodies, end) = self.star(rule, from, &[specs]);
                let body = bodies.pop().unwrap_or_default();
                (
                    Some(Step::Star1 {
                        entry,
                        back,
                        first: 0,
                        body,
                    }),
                    end,
                )
            }
            Star(alternatives) => {
                let (entry, back, block, bodies, end) = self.star(rule, from, alternatives);
                (
                    Some(Step::Star {
                        entry,
                        back,
                        block,
                        bodies,
                    }),
                    end,
                )
            }
            Plus(specs) | Plus1(specs) => {
                let block = self.choice(rule, from);
                let (mut bodies, join) = self.block(rule, block, &[specs]);
                let back = self.state(rule, StateKind::LoopBack);
                let end = self.state(rule, StateKind::Basic);
                self.edge(join, Edge::Free(back));
                self.edge(back, Edge::Free(block));
                self.edge(back, Edge::Free(end));
                let first = matches!(spec, Plus1(_)).then_some(0);
                let body = bodies.pop().unwrap_or_default();
                (
                    Some(Step::Plus {
                        block,
                        back,
                        first,
                        body,
                    }),
                    end,
                )
            }
        }
    }

    fn tokens(
        &mut self,
        rule: Rule,
        from: StateId,
        left: StateId,
        set: TokenSet,
    ) -> (Option<Step>, StateId) {
        let right = self.state(rule, StateKind::Basic);
        self.edge(from, Edge::Free(left));
        self.edge(left, Edge::Tokens(set, right));
        (Some(Step::Tokens { state: left, set }), right)
    }

    fn choice(&mut self, rule: Rule, from: StateId) -> StateId {
        let choice = self.state(rule, StateKind::Choice);
        self.edge(from, Edge::Free(choice));
        choice
    }

    fn star(
        &mut self,
        rule: Rule,
        from: StateId,
        alternatives: &[&[Spec]],
    ) -> (StateId, StateId, StateId, Vec<Vec<Step>>, StateId) {
        let entry = self.choice(rule, from);
        let block = self.state(rule, StateKind::Choice);
        let end = self.state(rule, StateKind::Basic);
        self.edge(entry, Edge::Free(block));
        self.edge(entry, Edge::Free(end));
        let (bodies, join) = self.block(rule, block, alternatives);
        let back = self.state(rule, StateKind::LoopBack);
        self.edge(join, Edge::Free(back));
        self.edge(back, Edge::Free(entry));
        (entry, back, block, bodies, end)
    }
}
