import { tooLarge } from '../../shared/wire/output-format.js';
import {
  ANY_CODE_POINT,
  classesOf,
  codePointsKey,
  complement,
  contains,
  intersection,
  union,
  type CodePoints,
} from './code-points.js';
import { PATTERN_STATES_LIMIT, PATTERN_WORK_LIMIT } from './format-limits.js';
import { parsePattern, type Pattern } from './pattern-syntax.js';

/** A deterministic automaton over characters. It starts in state 0. Some states may reach no end. */
export interface CharacterAutomaton {
  readonly states: readonly CharacterState[];
}

export interface CharacterState {
  /** One edge per target; the sets do not overlap. */
  readonly edges: readonly { readonly set: CodePoints; readonly target: number }[];
  readonly isFinal: boolean;
}

/** Accepts texts that a pattern of ECMAScript (flag u) matches anywhere. Throws REQUEST_INVALID; `where`: the pattern's place, for messages. */
export function patternAutomaton(source: string, where: string, work: PatternWork): CharacterAutomaton {
  const nondeterministic = new PatternStates(where);
  const [first, last] = [nondeterministic.add(), nondeterministic.add()];
  nondeterministic.connect(first, { kind: 'character', set: ANY_CODE_POINT, target: first });
  nondeterministic.connect(last, { kind: 'character', set: ANY_CODE_POINT, target: last });
  nondeterministic.build(parsePattern(source, where), first, last);
  return new Determinizer(nondeterministic, last, where, work).run(first);
}

/** Accepts all texts except these. */
export function otherTextsAutomaton(texts: readonly string[]): CharacterAutomaton {
  const children = [new Map<number, number>()];
  const isText = [false];
  for (const text of texts) {
    let state = 0;
    for (const character of text) {
      const codePoint = character.codePointAt(0) ?? 0;
      const target = children[state]?.get(codePoint) ?? children.length;
      if (target === children.length) {
        children.push(new Map());
        isText.push(false);
      }
      children[state]?.set(codePoint, target);
      state = target;
    }
    isText[state] = true;
  }
  const free = children.length;
  const states = children.map((edges, index): CharacterState => {
    const listed = [...edges].map(([codePoint, target]) => ({ set: single(codePoint), target }));
    const others = intersection(ANY_CODE_POINT, complement(union(...listed.map(({ set }) => set))));
    return { edges: [...listed, { set: others, target: free }], isFinal: isText[index] !== true };
  });
  return { states: [...states, { edges: [{ set: ANY_CODE_POINT, target: free }], isFinal: true }] };
}

/** Accepts all texts that do not contain this one. Each state is final and has edges. */
export function textsWithoutAutomaton(excluded: string): CharacterAutomaton {
  const characters = [...excluded];
  const beginnings = characters.map((_, length) => characters.slice(0, length).join(''));
  const states = beginnings.map((read): CharacterState => {
    const edges: { set: CodePoints; target: number }[] = [];
    let others = ANY_CODE_POINT;
    for (const character of new Set(characters)) {
      const text = read + character;
      const one = single(character.codePointAt(0) ?? 0);
      const target = beginnings.findLastIndex((beginning) => text.endsWith(beginning));
      if (text === excluded || target > 0) others = intersection(others, complement(one));
      if (text !== excluded && target > 0) edges.push({ set: one, target });
    }
    return { edges: [...edges, { set: others, target: 0 }], isFinal: true };
  });
  return { states };
}

/** Accepts texts that both automata accept. */
export function both(one: CharacterAutomaton, other: CharacterAutomaton, where: string): CharacterAutomaton {
  const found = new Map<string, number>([['0 0', 0]]);
  const waiting: [number, number][] = [[0, 0]];
  const indexOf = (pair: [number, number]): number => {
    const key = pair.join(' ');
    const index = found.get(key) ?? waiting.length;
    if (index < waiting.length) return index;
    if (index >= PATTERN_STATES_LIMIT) throw tooManyStates(where);
    found.set(key, index);
    return waiting.push(pair) - 1;
  };
  const states: CharacterState[] = [];
  for (const [first, second] of waiting) {
    const [ofOne, ofOther] = [one.states[first], other.states[second]];
    const edges = (ofOne?.edges ?? []).flatMap((edge) =>
      (ofOther?.edges ?? []).flatMap(({ set, target }) => {
        const shared = intersection(edge.set, set);
        return shared.length === 0 ? [] : [{ set: shared, target: indexOf([edge.target, target]) }];
      }),
    );
    states.push({ edges, isFinal: ofOne?.isFinal === true && ofOther?.isFinal === true });
  }
  return { states };
}

/** Accepts texts of the automaton that have at least `least` and at most `most` characters. */
export function withLength(
  automaton: CharacterAutomaton,
  { least, most }: { least: number; most: number },
  where: string,
): CharacterAutomaton {
  if (least === 0 && most === Infinity) return automaton;
  const countLimit = most === Infinity ? least : most;
  if (automaton.states.length * (countLimit + 1) > PATTERN_STATES_LIMIT * 10) throw tooManyStates(where);
  const found = new Map<string, number>([['0 0', 0]]);
  const waiting = [{ state: 0, count: 0 }];
  const states: CharacterState[] = [];
  for (const { state, count } of waiting) {
    const { edges, isFinal } = automaton.states[state] ?? { edges: [], isFinal: false };
    const next = Math.min(count + 1, countLimit);
    const remaining = count + 1 > most ? [] : edges;
    states.push({
      isFinal: isFinal && count >= least,
      edges: remaining.map(({ set, target }) => {
        const key = `${target} ${next}`;
        const index = found.get(key) ?? waiting.length;
        if (index === waiting.length) {
          if (index >= PATTERN_STATES_LIMIT) throw tooManyStates(where);
          found.set(key, index);
          waiting.push({ state: target, count: next });
        }
        return { set, target: index };
      }),
    });
  }
  return { states };
}

export function automatonAccepts(automaton: CharacterAutomaton, text: string): boolean {
  let state = automaton.states[0];
  for (const character of text) {
    const codePoint = character.codePointAt(0) ?? 0;
    const edge = state?.edges.find(({ set }) => contains(set, codePoint));
    if (edge === undefined) return false;
    state = automaton.states[edge.target];
  }
  return state?.isFinal ?? false;
}

function single(codePoint: number): CodePoints {
  return [[codePoint, codePoint]];
}

function tooManyStates(where: string): Error {
  return tooLarge(`${where} makes an automaton of over ${PATTERN_STATES_LIMIT} states`);
}

type PatternEdge =
  { kind: 'character'; set: CodePoints; target: number } | { kind: 'empty' | 'textStart' | 'textEnd'; target: number };

/** A nondeterministic automaton that is built from a pattern. */
class PatternStates {
  readonly edges: PatternEdge[][] = [];

  constructor(private readonly where: string) {}

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

/** Makes an automaton deterministic: each of its states is a set of the pattern's states. */
class Determinizer {
  private readonly work: (steps: number) => void;
  private readonly classes: readonly CodePoints[];
  /** The classes of each edge, by the edge's state and place. */
  private readonly classesOfEdges: readonly (readonly (readonly number[])[])[];
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
    for (const edge of pattern.edges.flat()) if (edge.kind === 'character') sets.set(keyOf(edge), edge.set);
    const { classes, classesOfSet } = classesOf([...sets.values()], this.work);
    const classesOfKey = new Map([...sets.keys()].map((key, index) => [key, classesOfSet[index] ?? []]));
    this.classes = classes;
    this.classesOfEdges = pattern.edges.map((edges) => edges.map((edge) => classesOfKey.get(keyOf(edge)) ?? []));
  }

  run(first: number): CharacterAutomaton {
    this.indexOf(this.closure([first], { atStart: true, atEnd: false }), true);
    const states: CharacterState[] = [];
    for (const { members, atStart } of this.waiting) {
      const isFinal = this.closure(members, { atStart, atEnd: true }).includes(this.last);
      states.push({ edges: this.edgesOf(members), isFinal });
    }
    return { states };
  }

  private edgesOf(members: readonly number[]): CharacterState['edges'] {
    const targetsOfClass = new Map<number, number[]>();
    for (const member of members) {
      for (const [place, edge] of (this.pattern.edges[member] ?? []).entries()) {
        const classes = this.classesOfEdges[member]?.[place] ?? [];
        this.work(classes.length);
        for (const index of classes) {
          const targets = targetsOfClass.get(index) ?? [];
          targets.push(edge.target);
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

  /** All states that are reachable without a character; an anchor can be passed only at its end of the text. */
  private closure(from: readonly number[], anchors: { atStart: boolean; atEnd: boolean }): readonly number[] {
    const reached = new Set(from);
    for (const state of reached) {
      const edges = this.pattern.edges[state] ?? [];
      this.work(edges.length + 1);
      for (const edge of edges) {
        if (edge.kind === 'character') continue;
        if ((edge.kind === 'textStart' && !anchors.atStart) || (edge.kind === 'textEnd' && !anchors.atEnd)) continue;
        reached.add(edge.target);
      }
    }
    // A match stays a match with any text after it.
    if (reached.has(this.last) && !anchors.atEnd) return [this.last];
    return [...reached].sort((a, b) => a - b);
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
