/**
 * A grammar as numbers, for transfer from the thread that compiled it. Copying its many small objects would block the receiver for a second.
 * Numbers are transferred without a copy, and the objects are made from them in steps.
 */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';
import type { ByteMachine, MachineEdge, MachineState } from './byte-machine.js';
import type { CharacterNodeState, GrammarNode, GrammarRule } from './grammar.js';
import type { ShortestTexts } from './shortest-texts.js';

/** The grammar that answers are checked against. */
export interface CompiledGrammar {
  root: GrammarNode;
  shortest: ShortestTexts;
}

export type PackedGrammar = Float64Array<ArrayBuffer>;

/** States that are unpacked in one step: some milliseconds of work. */
const STEP_STATES = 2048;

const KINDS: readonly GrammarNode['kind'][] = ['machine', 'sequence', 'choice', 'repeat', 'characters', 'rule'];
const NOTHING = -1;

/** `nodes`: all nodes of the grammar, by id; each refers only to earlier ones, except through a rule. */
export function packGrammar(root: GrammarNode, nodes: readonly GrammarNode[], shortest: ShortestTexts): PackedGrammar {
  const rules = new Map<GrammarRule, number>();
  const out: number[] = [root.id, nodes.length];
  for (const node of nodes) {
    out.push(KINDS.indexOf(node.kind));
    packNode(node, out, rules);
  }
  out.push(rules.size);
  for (const { node } of rules.keys()) out.push(node?.id ?? NOTHING);
  for (const { id } of nodes) {
    out.push(shortest.ofNode[id] ?? Infinity, shortest.ofCharacter[id] ?? 0);
    const ofStates = shortest.ofStates[id] ?? null;
    out.push(ofStates?.length ?? NOTHING);
    for (const length of ofStates ?? []) out.push(length);
  }
  return Float64Array.from(out);
}

function packNode(node: GrammarNode, out: number[], rules: Map<GrammarRule, number>): void {
  switch (node.kind) {
    case 'machine':
      out.push(Number(node.machine.takesSpecialTokens), node.machine.states.length);
      for (const { isFinal, edges } of node.machine.states) {
        out.push(Number(isFinal), edges.length);
        for (const { low, high, target } of edges) out.push(low, high, target);
      }
      return;
    case 'sequence':
    case 'choice': {
      const parts = node.kind === 'sequence' ? node.items : node.options;
      out.push(parts.length);
      for (const { id } of parts) out.push(id);
      return;
    }
    case 'repeat':
      out.push(node.body.id, node.least, node.most);
      return;
    case 'characters':
      out.push(node.least, node.most, node.states.length);
      for (const { isFinal, edges } of node.states) {
        out.push(Number(isFinal), edges.length);
        for (const { character, target } of edges) out.push(character.id, target);
      }
      return;
    case 'rule':
      out.push(rules.get(node.rule) ?? rules.size);
      if (!rules.has(node.rule)) rules.set(node.rule, rules.size);
  }
}

/** Restores the grammar. Yields sometimes so that other work can run. */
export function* unpackGrammar(packed: PackedGrammar): SteppedWork<CompiledGrammar> {
  const reader = new GrammarReader(packed);
  const rootId = reader.next();
  const count = reader.next();
  for (let id = 0; id < count; id += 1) yield* reader.readNode(id);
  reader.readRules();
  const shortest = yield* reader.readShortest(count);
  return { root: reader.nodeOf(rootId), shortest };
}

class GrammarReader {
  private at = 0;
  private states = 0;
  private readonly nodes: GrammarNode[] = [];
  private readonly rules: GrammarRule[] = [];

  constructor(private readonly packed: PackedGrammar) {}

  next(): number {
    const value = this.packed[this.at++];
    assertInvariant(value !== undefined, 'a packed grammar is whole');
    return value;
  }

  nodeOf(id: number): GrammarNode {
    const node = this.nodes[id];
    assertInvariant(node !== undefined, `node ${id} of a packed grammar comes before those that name it`);
    return node;
  }

  *readNode(id: number): SteppedWork<void> {
    const kind = KINDS[this.next()];
    assertInvariant(kind !== undefined, 'a packed grammar has known kinds of nodes');
    switch (kind) {
      case 'machine':
        this.nodes.push({ kind, id, machine: yield* this.readMachine() });
        break;
      case 'sequence':
        this.nodes.push({ kind, id, items: this.readNodes() });
        break;
      case 'choice':
        this.nodes.push({ kind, id, options: this.readNodes() });
        break;
      case 'repeat':
        this.nodes.push({ kind, id, body: this.nodeOf(this.next()), least: this.next(), most: this.next() });
        break;
      case 'characters': {
        const [least, most] = [this.next(), this.next()];
        this.nodes.push({ kind, id, states: yield* this.readCharacters(), least, most });
        break;
      }
      case 'rule': {
        const index = this.next();
        const rule = (this.rules[index] ??= { node: null });
        this.nodes.push({ kind, id, rule });
      }
    }
    yield* this.pause(1);
  }

  readRules(): void {
    const count = this.next();
    for (let index = 0; index < count; index += 1) {
      const id = this.next();
      const rule = this.rules[index];
      if (rule !== undefined && id !== NOTHING) rule.node = this.nodeOf(id);
    }
  }

  *readShortest(count: number): SteppedWork<ShortestTexts> {
    const [ofNode, ofCharacter] = [new Float64Array(count), new Float64Array(count)];
    const ofStates: (Float64Array | null)[] = [];
    for (let id = 0; id < count; id += 1) {
      ofNode[id] = this.next();
      ofCharacter[id] = this.next();
      const length = this.next();
      ofStates.push(length === NOTHING ? null : this.packed.slice(this.at, this.at + length));
      this.at += Math.max(0, length);
      yield* this.pause(1);
    }
    return { ofNode, ofStates, ofCharacter };
  }

  private *readMachine(): SteppedWork<ByteMachine> {
    const takesSpecialTokens = this.next() !== 0;
    const count = this.next();
    const states: MachineState[] = [];
    for (let index = 0; index < count; index += 1) {
      const isFinal = this.next() !== 0;
      const edgeCount = this.next();
      const edges: MachineEdge[] = [];
      for (let edge = 0; edge < edgeCount; edge += 1) {
        edges.push({ low: this.next(), high: this.next(), target: this.next() });
      }
      states.push({ edges, isFinal });
      yield* this.pause(edgeCount);
    }
    return { states, takesSpecialTokens };
  }

  private *readCharacters(): SteppedWork<readonly CharacterNodeState[]> {
    const count = this.next();
    const states: CharacterNodeState[] = [];
    for (let index = 0; index < count; index += 1) {
      const isFinal = this.next() !== 0;
      const edgeCount = this.next();
      const edges: { character: GrammarNode; target: number }[] = [];
      for (let edge = 0; edge < edgeCount; edge += 1) {
        edges.push({ character: this.nodeOf(this.next()), target: this.next() });
      }
      states.push({ edges, isFinal });
      yield* this.pause(edgeCount);
    }
    return states;
  }

  private readNodes(): GrammarNode[] {
    const count = this.next();
    return Array.from({ length: count }, () => this.nodeOf(this.next()));
  }

  private *pause(parts: number): SteppedWork<void> {
    this.states += parts + 1;
    if (this.states < STEP_STATES) return;
    this.states = 0;
    yield;
  }
}
