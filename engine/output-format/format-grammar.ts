import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { machineOf, textsMachine, type ByteMachine } from './byte-machine.js';
import { both, textsWithoutAutomaton, withLength } from './character-automaton.js';
import { PatternWork } from './pattern-automaton.js';
import { REMEMBERED_GRAMMARS_LIMIT } from './format-limits.js';
import { GrammarBuilder, type GrammarNode, type GrammarRule } from './grammar.js';
import { formatInvalid, requireFormatBounds, partText } from '../../shared/wire/output-format.js';
import type { OutputFormat, OutputPart } from '../../shared/wire/messages.js';
import { readJsonSchema } from './schema-reader.js';
import { SchemaGrammar } from './schema-grammar.js';
import { shortestTexts } from './shortest-texts.js';
import type { JsonSchema, SchemaTarget, StringRule, ValuesSchema } from './json-schema.js';
import { schemaTakes } from './schema-takes.js';

export interface FormatGrammar {
  root: GrammarNode;
  nodes: readonly GrammarNode[];
}

/** Grammars of recent formats, by the format's key: a format is checked when its request comes in, and used soon after. */
const remembered = new RecentMap<string, FormatGrammar>(REMEMBERED_GRAMMARS_LIMIT);

/** Throws REQUEST_INVALID for an invalid format, or one that no text matches. */
export function checkOutputFormat(format: OutputFormat): void {
  compileFormat(format);
}

/** A key that is the same for equal formats. */
export function formatKey(format: OutputFormat): string {
  return JSON.stringify(format.alternatives.map(({ parts }) => parts.map(partKey)));
}

function partKey(part: OutputPart): string {
  const without = part.kind === 'schemaText' ? [part.schemaText.without] : [];
  return JSON.stringify([part.kind, partText(part), ...without]);
}

/** Throws like checkOutputFormat. */
export function compileFormat(format: OutputFormat): FormatGrammar {
  requireFormatBounds(format);
  const key = formatKey(format);
  return remembered.of(key, () => grammarOf(format));
}

function grammarOf(format: OutputFormat): FormatGrammar {
  const builder = new GrammarBuilder();
  const schemas = new SchemaGrammar(builder);
  const plainTexts = new PlainTextGrammar(builder);
  const work = new PatternWork();
  const makeNode = (part: OutputPart): GrammarNode => {
    if (part.kind === 'jsonSchema') return schemas.nodeOf(readJsonSchema(part.jsonSchema, work));
    if (part.kind !== 'schemaText') return builder.machine(machineOfText(part));
    const { jsonSchema, without } = part.schemaText;
    return plainTexts.nodeOf(readJsonSchema(jsonSchema, work), without);
  };
  // Alternatives share parts, for example the arguments of one function after different texts.
  const made = new Map<string, GrammarNode>();
  const nodeOf = (part: OutputPart): GrammarNode => {
    const key = partKey(part);
    const node = made.get(key) ?? makeNode(part);
    made.set(key, node);
    return node;
  };
  const alternatives = format.alternatives.map(({ parts }) => builder.sequence(...parts.map(nodeOf)));
  const root = builder.choice(...alternatives);
  const { ofNode } = shortestTexts(builder.nodes, new Uint8Array(256).fill(1));
  if (ofNode[root.id] === Infinity) {
    throw formatInvalid(
      'no JSON value is taken by the JSON schema: what it requires contradicts itself, or has no end; correct it',
    );
  }
  return { root, nodes: builder.nodes };
}

function machineOfText(part: Exclude<OutputPart, { kind: 'jsonSchema' | 'schemaText' }>): ByteMachine {
  switch (part.kind) {
    case 'literal':
      return textsMachine([part.literal], true);
    case 'until':
      return untilMachine(part.until);
  }
}

/** The range of the next byte in a UTF-8 text, and the number of bytes left in this character; 0 left: a new character. */
interface CharacterPlace {
  left: number;
  low: number;
  high: number;
}

const NEW_CHARACTER: CharacterPlace = { left: 0, low: 0, high: 0 };
/** First bytes of characters, with the allowed next bytes (RFC 3629). */
const FIRST_BYTES: readonly { low: number; high: number; next: CharacterPlace }[] = [
  { low: 0x00, high: 0x7f, next: NEW_CHARACTER },
  { low: 0xc2, high: 0xdf, next: { left: 1, low: 0x80, high: 0xbf } },
  { low: 0xe0, high: 0xe0, next: { left: 2, low: 0xa0, high: 0xbf } },
  { low: 0xe1, high: 0xec, next: { left: 2, low: 0x80, high: 0xbf } },
  { low: 0xed, high: 0xed, next: { left: 2, low: 0x80, high: 0x9f } },
  { low: 0xee, high: 0xef, next: { left: 2, low: 0x80, high: 0xbf } },
  { low: 0xf0, high: 0xf0, next: { left: 3, low: 0x90, high: 0xbf } },
  { low: 0xf1, high: 0xf3, next: { left: 3, low: 0x80, high: 0xbf } },
  { low: 0xf4, high: 0xf4, next: { left: 3, low: 0x80, high: 0x8f } },
];

function bytesAt(place: CharacterPlace): readonly { low: number; high: number; next: CharacterPlace }[] {
  if (place.left === 0) return FIRST_BYTES;
  const next = place.left === 1 ? NEW_CHARACTER : { left: place.left - 1, low: 0x80, high: 0xbf };
  return [{ low: place.low, high: place.high, next }];
}

function characterKey({ left, low, high }: CharacterPlace): string {
  return `${left} ${low} ${high}`;
}

/** Reads up to the first end of the wanted text (Knuth, Morris, Pratt). */
function untilMachine(until: string): ByteMachine {
  const wanted = new TextEncoder().encode(until);
  const fallbacks = borders(wanted);
  const matchedAfter = (matched: number, byte: number): number => {
    let at = matched;
    while (at > 0 && wanted[at] !== byte) at = fallbacks[at - 1] ?? 0;
    return wanted[at] === byte ? at + 1 : 0;
  };
  return machineOf<{ matched: number; place: CharacterPlace }>({
    start: { matched: 0, place: NEW_CHARACTER },
    key: ({ matched, place }) => `${matched} ${characterKey(place)}`,
    isFinal: ({ matched }) => matched === wanted.length,
    edges: ({ matched, place }) => {
      if (matched === wanted.length) return [];
      // Bytes that continue no beginning of the wanted text lead to the same state.
      const special = new Set<number>();
      for (let at: number | undefined = matched; at !== undefined; at = at === 0 ? undefined : fallbacks[at - 1]) {
        special.add(wanted[at] ?? 0);
      }
      return bytesAt(place).flatMap(({ low, high, next }) => {
        const cuts = [...special].filter((byte) => byte >= low && byte <= high).sort((a, b) => a - b);
        const edges = cuts.map((byte) => ({
          low: byte,
          high: byte,
          target: { matched: matchedAfter(matched, byte), place: next },
        }));
        let from = low;
        for (const byte of [...cuts, high + 1]) {
          if (from < byte) edges.push({ low: from, high: byte - 1, target: { matched: 0, place: next } });
          from = byte + 1;
        }
        return edges;
      });
    },
    takesSpecialTokens: true,
  });
}

/** For each beginning of the bytes: the length of the longest shorter beginning that it ends with. */
function borders(bytes: Uint8Array): Int32Array {
  const lengths = new Int32Array(bytes.length);
  let matched = 0;
  for (let at = 1; at < bytes.length; at++) {
    while (matched > 0 && bytes[at] !== bytes[matched]) matched = lengths[matched - 1] ?? 0;
    if (bytes[at] === bytes[matched]) matched += 1;
    lengths[at] = matched;
  }
  return lengths;
}

/** Makes grammars for the strings of JSON schemas when they are written as plain text, not as JSON. */
class PlainTextGrammar {
  /** By the text that the strings must not contain. */
  private readonly rules = new Map<string, Map<SchemaTarget, GrammarRule>>();

  constructor(private readonly builder: GrammarBuilder) {}

  /** `without`: a text that no string may contain. Values that are not strings are left out. */
  nodeOf(schema: JsonSchema, without: string): GrammarNode {
    const { builder } = this;
    switch (schema.kind) {
      case 'any':
        return builder.plainCharacters(textsWithoutAutomaton(without));
      case 'never':
        return builder.choice();
      case 'values':
        return builder.machine(textsMachine(stringsOf(schema).filter((text) => !text.includes(without))));
      case 'union':
        return builder.choice(...schema.options.map((option) => this.nodeOf(option, without)));
      case 'reference':
        return this.referenceNode(schema.target, without);
      case 'typed':
        return schema.types.has('string') ? this.stringNode(schema.string, without) : builder.choice();
    }
  }

  private referenceNode(target: SchemaTarget, without: string): GrammarNode {
    const rules = this.rules.get(without) ?? new Map<SchemaTarget, GrammarRule>();
    this.rules.set(without, rules);
    const known = rules.get(target);
    if (known !== undefined) return this.builder.rule(known);
    const rule: GrammarRule = { node: null };
    rules.set(target, rule);
    rule.node = target.schema === null ? null : this.nodeOf(target.schema, without);
    return this.builder.rule(rule);
  }

  private stringNode({ least, most, pattern, where }: StringRule, without: string): GrammarNode {
    const others = textsWithoutAutomaton(without);
    if (pattern === null) return this.builder.plainCharacters(others, { least, most });
    return this.builder.plainCharacters(both(withLength(pattern, { least, most }, where), others, where));
  }
}

/** Leaves out strings with a lone surrogate, because they cannot be written. */
function stringsOf({ values, conditions }: ValuesSchema): string[] {
  return values.flatMap((value) => {
    if (typeof value !== 'string' || /\p{Cs}/u.test(value)) return [];
    return conditions.every((condition) => schemaTakes(condition, value)) ? [value] : [];
  });
}
