import { tooLarge } from '../../shared/wire/output-format.js';
import { jsonCharacterMachine, plainCharacterMachine } from './character-bytes.js';
import type { ByteMachine } from './byte-machine.js';
import type { CharacterAutomaton } from './character-automaton.js';
import { codePointsKey, type CodePoints } from './code-points.js';
import { GRAMMAR_STATES_LIMIT } from './format-limits.js';

/** A part of a grammar. `id`s count from 0 in the order of creation. */
export type GrammarNode =
  | { readonly kind: 'machine'; readonly id: number; readonly machine: ByteMachine }
  | { readonly kind: 'sequence'; readonly id: number; readonly items: readonly GrammarNode[] }
  | { readonly kind: 'choice'; readonly id: number; readonly options: readonly GrammarNode[] }
  /** `body` never matches the empty text. */
  | {
      readonly kind: 'repeat';
      readonly id: number;
      readonly body: GrammarNode;
      readonly least: number;
      readonly most: number;
    }
  /** A text or the inside of a JSON string, character by character. If the characters are counted, each state is final and has edges. */
  | {
      readonly kind: 'characters';
      readonly id: number;
      readonly states: readonly CharacterNodeState[];
      readonly least: number;
      readonly most: number;
    }
  | { readonly kind: 'rule'; readonly id: number; readonly rule: GrammarRule };

export interface CharacterNodeState {
  readonly edges: readonly { readonly character: GrammarNode; readonly target: number }[];
  readonly isFinal: boolean;
}

/** A part that other parts, or the part itself, can refer to. */
export interface GrammarRule {
  node: GrammarNode | null;
}

const ANY_COUNT = { least: 0, most: Infinity };

/** Makes the nodes of one grammar, within limits. */
export class GrammarBuilder {
  readonly nodes: GrammarNode[] = [];
  private states = 0;
  private readonly machines = new Map<string, GrammarNode>();

  machine(machine: ByteMachine): GrammarNode {
    this.count(machine.states.length);
    return this.add({ kind: 'machine', id: this.nodes.length, machine });
  }

  /** Like machine, but made only once for each key. */
  rememberedMachine(key: string, make: () => ByteMachine): GrammarNode {
    const known = this.machines.get(key) ?? this.machine(make());
    this.machines.set(key, known);
    return known;
  }

  sequence(...items: readonly GrammarNode[]): GrammarNode {
    return this.add({ kind: 'sequence', id: this.nodes.length, items });
  }

  choice(...options: readonly GrammarNode[]): GrammarNode {
    if (options.length === 1 && options[0] !== undefined) return options[0];
    return this.add({ kind: 'choice', id: this.nodes.length, options });
  }

  repeat(body: GrammarNode, least: number, most: number): GrammarNode {
    return this.add({ kind: 'repeat', id: this.nodes.length, body, least, most });
  }

  rule(rule: GrammarRule): GrammarNode {
    return this.add({ kind: 'rule', id: this.nodes.length, rule });
  }

  /** One character of the set, in the forms of a JSON string. */
  jsonCharacter(set: CodePoints): GrammarNode {
    return this.rememberedMachine(`character ${codePointsKey(set)}`, () => jsonCharacterMachine(set));
  }

  jsonCharacters(automaton: CharacterAutomaton): GrammarNode {
    return this.characters(automaton, ANY_COUNT, (set) => this.jsonCharacter(set));
  }

  /** Characters in plain UTF-8. If there are counts, each state of the automaton must be final and have edges. */
  plainCharacters(automaton: CharacterAutomaton, counts = ANY_COUNT): GrammarNode {
    return this.characters(automaton, counts, (set) =>
      this.rememberedMachine(`plain character ${codePointsKey(set)}`, () => plainCharacterMachine(set)),
    );
  }

  private characters(
    automaton: CharacterAutomaton,
    { least, most }: { least: number; most: number },
    characterOf: (set: CodePoints) => GrammarNode,
  ): GrammarNode {
    this.count(automaton.states.length);
    const states = automaton.states.map(({ edges, isFinal }) => ({
      isFinal,
      edges: edges.map(({ set, target }) => ({ character: characterOf(set), target })),
    }));
    return this.add({ kind: 'characters', id: this.nodes.length, states, least, most });
  }

  private add(node: GrammarNode): GrammarNode {
    this.count(1);
    this.nodes.push(node);
    return node;
  }

  private count(states: number): void {
    this.states += states;
    if (this.states > GRAMMAR_STATES_LIMIT) throw tooLarge(`the output format has over ${GRAMMAR_STATES_LIMIT} states`);
  }
}
