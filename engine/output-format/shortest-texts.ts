import type { ByteMachine } from './byte-machine.js';
import type { CharacterNodeState, GrammarNode } from './grammar.js';

/** The length in bytes of the shortest text of each grammar part; Infinity: no text. */
export interface ShortestTexts {
  /** By the id of a node. */
  readonly ofNode: Float64Array;
  /** From each state of a machine or of characters to an end, by the id of the node; null for other nodes. */
  readonly ofStates: readonly (Float64Array | null)[];
  /** By the id of counted characters: the most bytes that one shortest character needs, in any state. */
  readonly ofCharacter: Float64Array;
}

/** `bytes`: for each byte 1 if a token is this single byte: only texts that can be written byte by byte count. */
export function shortestTexts(nodes: readonly GrammarNode[], bytes: Uint8Array): ShortestTexts {
  const ofNode = new Float64Array(nodes.length).fill(Infinity);
  const ofStates: (Float64Array | null)[] = nodes.map(() => null);
  const ofCharacter = new Float64Array(nodes.length);
  for (const { id, ...node } of nodes) {
    if (node.kind === 'machine') ofStates[id] = shortestWays(machineWays(node.machine, bytes));
    if (node.kind === 'characters') ofStates[id] = shortestWays(characterWays(node.states, ofNode));
    ofNode[id] = ofStates[id]?.[0] ?? Infinity;
    if (node.kind === 'characters' && node.least > 0) {
      ofCharacter[id] = longestCharacter(node.states, ofNode);
      ofNode[id] = node.least * ofCharacter[id];
    }
  }
  const users = usersOf(nodes);
  // Values only fall, and every fall is passed to the nodes that use the value.
  const waiting = new Set(nodes);
  for (const node of waiting) {
    waiting.delete(node);
    const length = shortestOf(node, ofNode);
    if (length >= (ofNode[node.id] ?? Infinity)) continue;
    ofNode[node.id] = length;
    for (const user of users[node.id] ?? []) waiting.add(user);
  }
  return { ofNode, ofStates, ofCharacter };
}

function shortestOf(node: GrammarNode, ofNode: Float64Array): number {
  const of = ({ id }: GrammarNode): number => ofNode[id] ?? Infinity;
  switch (node.kind) {
    case 'machine':
    case 'characters':
      return of(node);
    case 'sequence':
      return node.items.reduce((sum, item) => sum + of(item), 0);
    case 'choice':
      return node.options.reduce((least, option) => Math.min(least, of(option)), Infinity);
    case 'repeat':
      return node.least === 0 ? 0 : node.least * of(node.body);
    case 'rule':
      return node.rule.node === null ? Infinity : of(node.rule.node);
  }
}

/** The longest among the shortest characters of the states, in bytes. */
function longestCharacter(states: readonly CharacterNodeState[], ofNode: Float64Array): number {
  const shortest = states.map(({ edges }) =>
    edges.reduce((least, { character }) => Math.min(least, ofNode[character.id] ?? Infinity), Infinity),
  );
  return shortest.reduce((most, length) => Math.max(most, length), 0);
}

/** The nodes that contain a node, by the id of the contained node. */
function usersOf(nodes: readonly GrammarNode[]): GrammarNode[][] {
  const users: GrammarNode[][] = nodes.map(() => []);
  for (const node of nodes) for (const part of partsOf(node)) users[part.id]?.push(node);
  return users;
}

function partsOf(node: GrammarNode): readonly GrammarNode[] {
  switch (node.kind) {
    case 'sequence':
      return node.items;
    case 'choice':
      return node.options;
    case 'repeat':
      return [node.body];
    case 'rule':
      return node.rule.node === null ? [] : [node.rule.node];
    case 'machine':
    case 'characters':
      return [];
  }
}

/** Edges between states, with their lengths. */
interface Ways {
  isFinal: readonly boolean[];
  from: readonly { target: number; length: number }[][];
}

function machineWays(machine: ByteMachine, bytes: Uint8Array): Ways {
  return {
    isFinal: machine.states.map(({ isFinal }) => isFinal),
    from: machine.states.map(({ edges }) =>
      edges
        .filter(({ low, high }) => bytes.subarray(low, high + 1).includes(1))
        .map(({ target }) => ({ target, length: 1 })),
    ),
  };
}

function characterWays(states: readonly CharacterNodeState[], ofNode: Float64Array): Ways {
  return {
    isFinal: states.map(({ isFinal }) => isFinal),
    from: states.map(({ edges }) =>
      edges.map(({ character, target }) => ({ target, length: ofNode[character.id] ?? Infinity })),
    ),
  };
}

function shortestWays({ isFinal, from }: Ways): Float64Array {
  const into: { source: number; length: number }[][] = isFinal.map(() => []);
  for (const [source, ways] of from.entries()) {
    for (const { target, length } of ways) into[target]?.push({ source, length });
  }
  const lengths = new Float64Array(isFinal.length).fill(Infinity);
  const waiting = new Set<number>();
  for (const [state, isEnd] of isFinal.entries()) {
    if (!isEnd) continue;
    lengths[state] = 0;
    waiting.add(state);
  }
  for (const state of waiting) {
    waiting.delete(state);
    for (const { source, length } of into[state] ?? []) {
      const way = (lengths[state] ?? Infinity) + length;
      if (way >= (lengths[source] ?? Infinity)) continue;
      lengths[source] = way;
      waiting.add(source);
    }
  }
  return lengths;
}
