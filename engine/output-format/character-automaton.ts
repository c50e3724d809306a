import { tooLarge } from '../../shared/wire/output-format.js';
import { ANY_CODE_POINT, complement, contains, intersection, union, type CodePoints } from './code-points.js';
import { COUNTED_STATES, PATTERN_STATES_LIMIT } from './format-limits.js';

/** A deterministic automaton over characters. It starts in state 0. Some states may reach no end. */
export interface CharacterAutomaton {
  readonly states: readonly CharacterState[];
}

export interface CharacterState {
  /** One edge per target; the sets do not overlap. */
  readonly edges: readonly { readonly set: CodePoints; readonly target: number }[];
  readonly isFinal: boolean;
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

/** Accepts texts that the automaton does not. */
export function otherThan({ states }: CharacterAutomaton): CharacterAutomaton {
  const free = states.length;
  const others = states.map(({ edges, isFinal }): CharacterState => {
    const left = intersection(ANY_CODE_POINT, complement(union(...edges.map(({ set }) => set))));
    return { edges: left.length === 0 ? edges : [...edges, { set: left, target: free }], isFinal: !isFinal };
  });
  return { states: [...others, { edges: [{ set: ANY_CODE_POINT, target: free }], isFinal: true }] };
}

/** Accepts texts that at least one of the automata accepts. */
export function either(one: CharacterAutomaton, other: CharacterAutomaton, where: string): CharacterAutomaton {
  return otherThan(both(otherThan(one), otherThan(other), where));
}

/** Accepts each of the texts. */
export function textsAutomaton(texts: readonly string[]): CharacterAutomaton {
  return otherThan(otherTextsAutomaton(texts));
}

/** True if the automaton accepts some text. */
export function acceptsAny({ states }: CharacterAutomaton): boolean {
  const reached = new Set([0]);
  for (const index of reached) {
    if (states[index]?.isFinal === true) return true;
    for (const { target } of states[index]?.edges ?? []) reached.add(target);
  }
  return false;
}

/**
 * Accepts texts of the automaton that have at least `least` and at most `most` characters. Where `most` asks for very many states, it accepts
 * only shorter texts.
 */
export function withLength(
  automaton: CharacterAutomaton,
  { least, most }: { least: number; most: number },
  where: string,
): CharacterAutomaton {
  if (least === 0 && most === Infinity) return automaton;
  const last = most === Infinity ? Infinity : Math.min(most, Math.max(least, mostWritten(automaton)));
  const countLimit = last === Infinity ? least : last;
  if (automaton.states.length * (countLimit + 1) > PATTERN_STATES_LIMIT * 10) throw tooManyStates(where);
  const found = new Map<string, number>([['0 0', 0]]);
  const waiting = [{ state: 0, count: 0 }];
  const states: CharacterState[] = [];
  for (const { state, count } of waiting) {
    const { edges, isFinal } = automaton.states[state] ?? { edges: [], isFinal: false };
    const next = Math.min(count + 1, countLimit);
    const remaining = count + 1 > last ? [] : edges;
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

/** Most characters of texts whose length is counted. */
function mostWritten({ states }: CharacterAutomaton): number {
  return Math.floor(COUNTED_STATES / states.length);
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

export function tooManyStates(where: string): Error {
  return tooLarge(`${where} makes an automaton of over ${PATTERN_STATES_LIMIT} states`);
}
