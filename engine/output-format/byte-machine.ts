import { tooLarge } from '../../shared/wire/output-format.js';
import { GRAMMAR_STATES_LIMIT } from './format-limits.js';

/** A deterministic automaton over bytes. It starts in state 0. */
export interface ByteMachine {
  readonly states: readonly MachineState[];
  /** Special tokens may be read as their names here. */
  readonly takesSpecialTokens: boolean;
}

export interface MachineState {
  readonly edges: readonly MachineEdge[];
  /** The text may end in this state. */
  readonly isFinal: boolean;
}

export interface MachineEdge {
  /** First and last byte. */
  readonly low: number;
  readonly high: number;
  readonly target: number;
}

/** The state after a byte; -1: none. */
export function machineTarget(state: MachineState, byte: number): number {
  for (const { low, high, target } of state.edges) if (byte >= low && byte <= high) return target;
  return -1;
}

/** Describes a machine by its states: `key` is the same for equal states, and the `edges` of a state must not overlap. */
export interface MachineDescription<State> {
  start: State;
  key(state: State): string | number;
  edges(state: State): readonly { low: number; high: number; target: State }[];
  isFinal(state: State): boolean;
  takesSpecialTokens?: boolean;
}

/** Makes the machine of all reachable states. */
export function machineOf<State>(description: MachineDescription<State>): ByteMachine {
  const found = new Map<string | number, number>([[description.key(description.start), 0]]);
  const waiting = [description.start];
  const indexOf = (state: State): number => {
    const key = description.key(state);
    const index = found.get(key) ?? waiting.length;
    if (index < waiting.length) return index;
    if (index > GRAMMAR_STATES_LIMIT) throw tooLarge(`a part of the output format has over ${index} states`);
    found.set(key, index);
    waiting.push(state);
    return index;
  };
  const states: MachineState[] = [];
  for (const state of waiting) {
    const edges = description.edges(state).map(({ low, high, target }) => ({ low, high, target: indexOf(target) }));
    states.push({ edges, isFinal: description.isFinal(state) });
  }
  return { states, takesSpecialTokens: description.takesSpecialTokens ?? false };
}

/** Accepts each of the texts. */
export function textsMachine(texts: readonly string[], takesSpecialTokens = false): ByteMachine {
  interface Branch {
    edges: Map<number, number>;
    isFinal: boolean;
  }
  const branches: Branch[] = [{ edges: new Map(), isFinal: false }];
  for (const text of texts) {
    let branch = branches[0];
    for (const byte of new TextEncoder().encode(text)) {
      const index = branch?.edges.get(byte) ?? branches.length;
      if (index === branches.length) branches.push({ edges: new Map(), isFinal: false });
      branch?.edges.set(byte, index);
      branch = branches[index];
    }
    if (branch !== undefined) branch.isFinal = true;
  }
  const states = branches.map(({ edges, isFinal }) => ({
    edges: [...edges].map(([byte, target]) => ({ low: byte, high: byte, target })),
    isFinal,
  }));
  return { states, takesSpecialTokens };
}

/** The bytes that are allowed at one place, as ranges. */
export type ByteSet = readonly (readonly [number, number])[];

/** Accepts each of the sequences; a sequence is a set of bytes for each place. */
export function sequencesMachine(sequences: readonly (readonly ByteSet[])[]): ByteMachine {
  /** Sequences that still match, and the place in each. */
  type Places = readonly { sequence: number; place: number }[];
  return machineOf<Places>({
    start: sequences.map((_, sequence) => ({ sequence, place: 0 })),
    key: (places) => places.map(({ sequence, place }) => `${sequence}.${place}`).join(' '),
    isFinal: (places) => places.some(({ sequence, place }) => place === sequences[sequence]?.length),
    edges: (places) => {
      const ranges = places.flatMap((at) =>
        (sequences[at.sequence]?.[at.place] ?? []).map(([low, high]) => ({ low, high, at })),
      );
      const cuts = [...new Set(ranges.flatMap(({ low, high }) => [low, high + 1]))].sort((a, b) => a - b);
      return cuts.flatMap((low, index) => {
        const high = (cuts[index + 1] ?? low) - 1;
        const fitting = ranges.filter((range) => low >= range.low && high <= range.high && high >= low);
        if (fitting.length === 0) return [];
        const target = fitting.map(({ at }) => ({ sequence: at.sequence, place: at.place + 1 }));
        return [{ low, high, target }];
      });
    },
  });
}

/** Accepts the texts that both machines accept. */
export function commonMachine(one: ByteMachine, other: ByteMachine): ByteMachine {
  const machine = machineOf<readonly [number, number]>({
    start: [0, 0],
    key: (pair) => pair.join(' '),
    isFinal: ([first, second]) => one.states[first]?.isFinal === true && other.states[second]?.isFinal === true,
    edges: ([first, second]) =>
      (one.states[first]?.edges ?? []).flatMap((edge) =>
        (other.states[second]?.edges ?? []).flatMap(({ low, high, target }) => {
          const common = { low: Math.max(low, edge.low), high: Math.min(high, edge.high) };
          return common.low > common.high ? [] : [{ ...common, target: [edge.target, target] as const }];
        }),
      ),
  });
  return withoutDeadEnds(machine);
}

/** The machine without the edges after which no text ends. */
function withoutDeadEnds({ states, takesSpecialTokens }: ByteMachine): ByteMachine {
  const sources: number[][] = states.map(() => []);
  for (const [source, { edges }] of states.entries()) for (const { target } of edges) sources[target]?.push(source);
  const ending = new Set([...states.keys()].filter((state) => states[state]?.isFinal === true));
  for (const state of ending) for (const source of sources[state] ?? []) ending.add(source);
  const kept = states.map(({ edges, isFinal }) => ({
    isFinal,
    edges: edges.filter(({ target }) => ending.has(target)),
  }));
  return { states: kept, takesSpecialTokens };
}
