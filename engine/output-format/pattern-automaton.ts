import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { tooLarge } from '../../shared/wire/output-format.js';
import { otherThan, tooManyStates, type CharacterAutomaton, type CharacterState } from './character-automaton.js';
import { ANY_CODE_POINT, classesOf, codePointsKey, contains, union, type CodePoints } from './code-points.js';
import { PATTERN_STATES_LIMIT, PATTERN_WORK_LIMIT } from './format-limits.js';
import { parsePattern, type Pattern } from './pattern-syntax.js';

/** Accepts texts that a pattern of ECMAScript (flag u) matches anywhere. Throws REQUEST_INVALID; `where`: the pattern's place, for messages. */
export function patternAutomaton(source: string, where: string, work: PatternWork): CharacterAutomaton {
  const nondeterministic = new PatternStates(where, work);
  const [first, last] = [nondeterministic.add(), nondeterministic.add()];
  nondeterministic.connect(first, { kind: 'character', set: ANY_CODE_POINT, target: first });
  return matchedAutomaton(nondeterministic, parsePattern(source, where), [first, last], where, work);
}

/** Accepts texts that begin with the pattern. */
function beginningsAutomaton(pattern: Pattern, where: string, work: PatternWork): CharacterAutomaton {
  const nondeterministic = new PatternStates(where, work);
  const ends = [nondeterministic.add(), nondeterministic.add()] as const;
  return matchedAutomaton(nondeterministic, pattern, ends, where, work);
}

/** Any text may follow the pattern. */
function matchedAutomaton(
  states: PatternStates,
  pattern: Pattern,
  [first, last]: readonly [number, number],
  where: string,
  work: PatternWork,
): CharacterAutomaton {
  states.connect(last, { kind: 'character', set: ANY_CODE_POINT, target: last });
  states.build(pattern, first, last);
  return new Determinizer(states, last, where, work).run(first);
}

type PatternEdge =
  | { kind: 'character'; set: CodePoints; target: number }
  | { kind: 'empty' | 'textStart' | 'textEnd'; target: number }
  /** Passed where the rest of the text is one that `rest` accepts. */
  | { kind: 'lookahead'; rest: CharacterAutomaton; target: number };

/** A nondeterministic automaton that is built from a pattern. */
class PatternStates {
  readonly edges: PatternEdge[][] = [];

  constructor(
    private readonly where: string,
    private readonly work: PatternWork,
  ) {}

  add(): number {
    if (this.edges.length >= PATTERN_STATES_LIMIT) throw tooManyStates(this.where);
    return this.edges.push([]) - 1;
  }

  connect(from: number, edge: PatternEdge): void {
    this.edges[from]?.push(edge);
  }

  /** Adds states and edges for the pattern between two states. */
  build(pattern: Pattern, from: number, to: number): void {
    switch (pattern.kind) {
      case 'character':
        return this.connect(from, { kind: 'character', set: pattern.set, target: to });
      case 'textStart':
      case 'textEnd':
        return this.connect(from, { kind: pattern.kind, target: to });
      case 'lookahead': {
        const rest = beginningsAutomaton(pattern.body, this.where, this.work);
        return this.connect(from, { kind: 'lookahead', rest: pattern.isNegative ? otherThan(rest) : rest, target: to });
      }
      case 'choice':
        for (const option of pattern.options) this.build(option, from, to);
        return;
      case 'sequence': {
        let state = from;
        for (const item of pattern.items) state = this.after(item, state);
        return this.connect(state, { kind: 'empty', target: to });
      }
      case 'repeat':
        return this.buildRepeat(pattern.body, pattern.least, pattern.most, from, to);
    }
  }

  private after(pattern: Pattern, from: number): number {
    const to = this.add();
    this.build(pattern, from, to);
    return to;
  }

  private buildRepeat(body: Pattern, least: number, most: number, from: number, to: number): void {
    // A separate first state: the loop must not lead back into other edges that begin at `from`.
    let state = this.after({ kind: 'sequence', items: [] }, from);
    for (let count = 0; count < least; count++) state = this.after(body, state);
    if (most === Infinity) {
      const round = this.after({ kind: 'sequence', items: [] }, state);
      this.connect(this.after(body, round), { kind: 'empty', target: round });
      state = round;
    } else {
      for (let count = least; count < most; count++) {
        this.connect(state, { kind: 'empty', target: to });
        state = this.after(body, state);
      }
    }
    this.connect(state, { kind: 'empty', target: to });
  }
}

/** Counts the steps of making the patterns of one format deterministic. */
export class PatternWork {
  private taken = 0;

  /** Throws REQUEST_INVALID when there are too many steps. `where`: the pattern that takes them. */
  take(steps: number, where: string): void {
    this.taken += steps;
    if (this.taken > PATTERN_WORK_LIMIT) {
      throw tooLarge(`${where}, with those before it, takes over ${PATTERN_WORK_LIMIT} steps to be made an automaton`);
    }
  }
}

/** A state of the pattern, and the lookaheads that the rest of the text must still meet, by their numbers in rising order. */
interface Configuration {
  readonly state: number;
  readonly lookaheads: readonly number[];
}

/** A lookahead on its way: a state of its automaton. */
interface Lookahead {
  readonly automaton: CharacterAutomaton;
  readonly state: number;
  /** Lookaheads after one character, by the character's class: a number, `met` (any rest will do) or `missed` (none will). */
  readonly next: Map<number, number | 'met' | 'missed'>;
}

/** Makes an automaton deterministic: each of its states is a set of configurations. */
class Determinizer {
  private readonly work: (steps: number) => void;
  private readonly classes: readonly CodePoints[];
  /** The classes of each edge, by the edge's state and place. */
  private readonly classesOfEdges: readonly (readonly (readonly number[])[])[];
  private readonly configurations: Configuration[] = [];
  private readonly numbers = new Map<string, number>();
  private readonly lookaheads: Lookahead[] = [];
  private readonly lookaheadNumbers = new Map<CharacterAutomaton, Map<number, number>>();
  private readonly found = new Map<string, number>();
  private readonly waiting: { members: readonly number[]; atStart: boolean }[] = [];

  constructor(
    private readonly pattern: PatternStates,
    private readonly last: number,
    private readonly where: string,
    budget: PatternWork,
  ) {
    this.work = (steps) => budget.take(steps, where);
    const sets = new Map<string, CodePoints>();
    const keyOf = (edge: PatternEdge): string => (edge.kind === 'character' ? codePointsKey(edge.set) : '');
    for (const edge of pattern.edges.flat()) {
      if (edge.kind === 'character') sets.set(keyOf(edge), edge.set);
      if (edge.kind === 'lookahead') {
        for (const { set } of edge.rest.states.flatMap(({ edges }) => edges)) sets.set(codePointsKey(set), set);
      }
    }
    const { classes, classesOfSet } = classesOf([...sets.values()], this.work);
    const classesOfKey = new Map([...sets.keys()].map((key, index) => [key, classesOfSet[index] ?? []]));
    this.classes = classes;
    this.classesOfEdges = pattern.edges.map((edges) => edges.map((edge) => classesOfKey.get(keyOf(edge)) ?? []));
  }

  run(first: number): CharacterAutomaton {
    const start = this.numberOf({ state: first, lookaheads: [] });
    this.indexOf(this.closure([start], { atStart: true, atEnd: false }), true);
    const states: CharacterState[] = [];
    for (const { members, atStart } of this.waiting) {
      const ends = this.closure(members, { atStart, atEnd: true });
      states.push({ edges: this.edgesOf(members), isFinal: ends.some((end) => this.isEnd(end)) });
    }
    return { states };
  }

  private edgesOf(members: readonly number[]): CharacterState['edges'] {
    const targetsOfClass = new Map<number, number[]>();
    for (const member of members) {
      const { state, lookaheads } = this.configuration(member);
      for (const [place, edge] of (this.pattern.edges[state] ?? []).entries()) {
        const classes = this.classesOfEdges[state]?.[place] ?? [];
        this.work(classes.length * (lookaheads.length + 1));
        for (const index of classes) {
          const left = this.lookaheadsBehind(lookaheads, index);
          if (left === null) continue;
          const targets = targetsOfClass.get(index) ?? [];
          targets.push(this.numberOf({ state: edge.target, lookaheads: left }));
          targetsOfClass.set(index, targets);
        }
      }
    }
    const setsOfTarget = new Map<number, CodePoints[]>();
    for (const [index, targets] of targetsOfClass) {
      const target = this.indexOf(this.closure(targets, { atStart: false, atEnd: false }), false);
      const sets = setsOfTarget.get(target) ?? [];
      sets.push(this.classes[index] ?? []);
      setsOfTarget.set(target, sets);
    }
    return [...setsOfTarget].map(([target, sets]) => ({ target, set: union(...sets) }));
  }

  /** All configurations that are reachable without a character; an anchor can be passed only at its end of the text. */
  private closure(from: readonly number[], anchors: { atStart: boolean; atEnd: boolean }): readonly number[] {
    const reached = new Set(from);
    for (const member of reached) {
      const { state, lookaheads } = this.configuration(member);
      const edges = this.pattern.edges[state] ?? [];
      this.work(edges.length + 1);
      for (const edge of edges) {
        if (edge.kind === 'character') continue;
        if ((edge.kind === 'textStart' && !anchors.atStart) || (edge.kind === 'textEnd' && !anchors.atEnd)) continue;
        const more = edge.kind === 'lookahead' ? this.lookaheadAt(edge.rest, 0) : 'met';
        if (more !== 'missed')
          reached.add(this.numberOf({ state: edge.target, lookaheads: withOne(lookaheads, more) }));
      }
    }
    // A match stays a match with any text after it, unless a lookahead is on its way.
    const matched = this.numbers.get(`${this.last}|`);
    if (matched !== undefined && reached.has(matched) && !anchors.atEnd) return [matched];
    return [...reached].sort((a, b) => a - b);
  }

  /** True if the pattern matches and the text may end here. */
  private isEnd(member: number): boolean {
    const { state, lookaheads } = this.configuration(member);
    if (state !== this.last) return false;
    return lookaheads.every((number) => {
      const { automaton, state: at } = this.lookahead(number);
      return automaton.states[at]?.isFinal === true;
    });
  }

  /** The lookaheads after a character of a class; null: one is missed. */
  private lookaheadsBehind(lookaheads: readonly number[], classIndex: number): readonly number[] | null {
    let left: readonly number[] = [];
    for (const number of lookaheads) {
      const next = this.lookaheadBehind(number, classIndex);
      if (next === 'missed') return null;
      left = withOne(left, next);
    }
    return left;
  }

  private lookaheadBehind(number: number, classIndex: number): number | 'met' | 'missed' {
    const { automaton, state, next } = this.lookahead(number);
    const character = this.classes[classIndex]?.[0]?.[0] ?? 0;
    const edge = automaton.states[state]?.edges.find(({ set }) => contains(set, character));
    const known = next.get(classIndex) ?? (edge === undefined ? 'missed' : this.lookaheadAt(automaton, edge.target));
    next.set(classIndex, known);
    return known;
  }

  private lookaheadAt(automaton: CharacterAutomaton, state: number): number | 'met' | 'missed' {
    const edges = automaton.states[state]?.edges ?? [];
    const isFinal = automaton.states[state]?.isFinal === true;
    if (edges.every(({ target }) => target === state)) {
      if (!isFinal) return 'missed';
      if (codePointsKey(union(...edges.map(({ set }) => set))) === codePointsKey(ANY_CODE_POINT)) return 'met';
    }
    const numbers = this.lookaheadNumbers.get(automaton) ?? new Map<number, number>();
    this.lookaheadNumbers.set(automaton, numbers);
    const number = numbers.get(state) ?? this.lookaheads.push({ automaton, state, next: new Map() }) - 1;
    numbers.set(state, number);
    return number;
  }

  private configuration(number: number): Configuration {
    return requirePresent(this.configurations[number], 'A state of a pattern has no configuration.');
  }

  private lookahead(number: number): Lookahead {
    return requirePresent(this.lookaheads[number], 'A lookahead of a pattern was never made.');
  }

  private numberOf(configuration: Configuration): number {
    const key = `${configuration.state}|${configuration.lookaheads.join(' ')}`;
    const number = this.numbers.get(key) ?? this.configurations.push(configuration) - 1;
    this.numbers.set(key, number);
    return number;
  }

  private indexOf(members: readonly number[], atStart: boolean): number {
    const key = `${atStart ? 'start ' : ''}${members.join(' ')}`;
    const index = this.found.get(key) ?? this.waiting.length;
    if (index === this.waiting.length) {
      if (index >= PATTERN_STATES_LIMIT) throw tooManyStates(this.where);
      this.found.set(key, index);
      this.waiting.push({ members, atStart });
    }
    return index;
  }
}

/** The lookaheads with one more. */
function withOne(lookaheads: readonly number[], more: number | 'met'): readonly number[] {
  return more === 'met' || lookaheads.includes(more) ? lookaheads : [...lookaheads, more].sort((a, b) => a - b);
}
