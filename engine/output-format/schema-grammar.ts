import { formatInvalid } from '../../shared/wire/output-format.js';
import { machineOf, textsMachine, type ByteMachine } from './byte-machine.js';
import { withLength } from './character-automaton.js';
import { ANY_CODE_POINT } from './code-points.js';
import type { GrammarBuilder, GrammarNode, GrammarRule } from './grammar.js';
import {
  writeJsonValue,
  type ArrayRule,
  type JsonSchema,
  type JsonType,
  type ObjectRule,
  type SchemaTarget,
  type StringRule,
  type TypedSchema,
  type ValuesSchema,
} from './json-schema.js';
import { ANY_NUMBER, numberMachine, type NumberRule } from './number-machine.js';
import { ObjectGrammar } from './object-grammar.js';
import { schemaTakes } from './schema-takes.js';

/** Most spaces after a line feed. */
const INDENTATION_LIMIT = 20;
const [LINE_FEED, SPACE] = [0x0a, 0x20];

const ANY_VALUE: TypedSchema = {
  kind: 'typed',
  types: new Set<JsonType>(['object', 'array', 'string', 'number', 'boolean', 'null']),
  number: ANY_NUMBER,
  string: { least: 0, most: Infinity, pattern: null, where: '' },
  array: { first: [], items: { kind: 'any' }, isOpenByDefault: false, least: 0, most: Infinity },
  object: {
    properties: new Map(),
    required: new Set(),
    others: [{ keys: null, schema: { kind: 'any' }, isDefault: true }],
    isClosed: false,
    names: { kind: 'any' },
    least: 0,
    most: Infinity,
  },
  where: '$',
};

/**
 * Makes grammars of JSON schemas. Between the punctuation of JSON a text may have nothing, one space, or a line feed and up to
 * INDENTATION_LIMIT spaces; after a colon nothing or one space. Properties come in the order of the schema, then other keys if the schema
 * mentions them.
 */
export class SchemaGrammar {
  private readonly rules = new Map<SchemaTarget, GrammarRule>();
  private anyValue: GrammarRule | null = null;

  constructor(private readonly builder: GrammarBuilder) {}

  nodeOf(schema: JsonSchema): GrammarNode {
    switch (schema.kind) {
      case 'any':
        return this.anyValueNode();
      case 'never':
        return this.builder.choice();
      case 'values':
        return this.valuesNode(schema);
      case 'union':
        return this.builder.choice(...schema.options.map((option) => this.nodeOf(option)));
      case 'reference':
        return this.referenceNode(schema.target);
      case 'typed':
        return this.builder.choice(...[...schema.types].map((type) => this.typeNode(schema, type)));
    }
  }

  private anyValueNode(): GrammarNode {
    if (this.anyValue === null) {
      this.anyValue = { node: null };
      this.anyValue.node = this.nodeOf(ANY_VALUE);
    }
    return this.builder.rule(this.anyValue);
  }

  private valuesNode({ values, conditions, where }: ValuesSchema): GrammarNode {
    const taken = values.filter((value) => conditions.every((condition) => schemaTakes(condition, value)));
    if (taken.length === 0) {
      throw formatInvalid(
        `no value is taken at ${where}: enum, const and what stands beside them leave none; correct the schema`,
      );
    }
    return this.builder.machine(textsMachine(taken.map(writeJsonValue)));
  }

  private referenceNode(target: SchemaTarget): GrammarNode {
    const known = this.rules.get(target);
    if (known !== undefined) return this.builder.rule(known);
    const rule: GrammarRule = { node: null };
    this.rules.set(target, rule);
    rule.node = target.schema === null ? null : this.nodeOf(target.schema);
    return this.builder.rule(rule);
  }

  private typeNode(schema: TypedSchema, type: JsonType): GrammarNode {
    switch (type) {
      case 'object':
        return this.objectNode(schema.object);
      case 'array':
        return this.arrayNode(schema.array);
      case 'string':
        return this.stringNode(schema.string);
      case 'number':
        return this.numberNode(schema.number);
      case 'boolean':
        return this.text('true', 'false');
      case 'null':
        return this.text('null');
    }
  }

  private numberNode(rule: NumberRule): GrammarNode {
    const { isInteger, least, isLeastExcluded, most, isMostExcluded, multipleOf } = rule;
    const multiples = multipleOf === null ? '' : `${multipleOf.digits}e-${multipleOf.fractionDigits}`;
    const key = `number ${isInteger} ${least} ${isLeastExcluded} ${most} ${isMostExcluded} ${multiples}`;
    return this.builder.rememberedMachine(key, () => numberMachine(rule));
  }

  private stringNode({ least, most, pattern, where }: StringRule): GrammarNode {
    const { builder } = this;
    const inside =
      pattern === null
        ? builder.repeat(builder.jsonCharacter(ANY_CODE_POINT), least, most)
        : builder.jsonCharacters(withLength(pattern, { least, most }, where));
    return builder.sequence(this.text('"'), inside, this.text('"'));
  }

  private arrayNode({ first, items, isOpenByDefault, least, most: given }: ArrayRule): GrammarNode {
    const { builder } = this;
    const isOpen = items.kind !== 'never' && (!isOpenByDefault || (least ?? 0) > first.length);
    const most = isOpen ? given : Math.min(given, first.length);
    const fewest = least ?? Math.min(first.length, most);
    const open = this.withGap('[', 'behind');
    if (most === 0) return builder.sequence(open, this.text(']'));
    const close = this.withGap(']', 'before');
    const [lead, ...others] = first;
    const item = isOpen ? this.nodeOf(items) : null;
    // The items behind the first ones, then from the last of the first ones to the second.
    let behind = close;
    if (item !== null && most > first.length) {
      const written = Math.max(1, first.length);
      const more = builder.repeat(builder.sequence(this.comma(), item), Math.max(0, fewest - written), most - written);
      behind = builder.sequence(more, close);
    }
    for (const [index, schema] of [...others.entries()].reverse()) {
      if (index + 1 >= most) continue;
      const more = builder.sequence(this.comma(), this.nodeOf(schema), behind);
      behind = index + 1 >= fewest ? builder.choice(more, close) : more;
    }
    const filled = builder.sequence(lead === undefined ? (item ?? builder.choice()) : this.nodeOf(lead), behind);
    return builder.sequence(open, fewest === 0 ? builder.choice(this.text(']'), filled) : filled);
  }

  private objectNode(rule: ObjectRule): GrammarNode {
    const { builder } = this;
    return new ObjectGrammar(builder, {
      valueOf: (schema) => this.nodeOf(schema),
      text: (text) => this.text(text),
      comma: this.comma(),
      colon: this.colon(),
      open: this.withGap('{', 'behind'),
      close: this.withGap('}', 'before'),
    }).nodeOf(rule);
  }

  private text(...texts: readonly string[]): GrammarNode {
    return this.builder.rememberedMachine(`text ${texts.join('|')}`, () => textsMachine(texts));
  }

  private colon(): GrammarNode {
    return this.text(':', ': ');
  }

  private comma(): GrammarNode {
    return this.withGap(',', 'behind');
  }

  private withGap(sign: string, side: 'before' | 'behind'): GrammarNode {
    return this.builder.rememberedMachine(`gap ${side} ${sign}`, () => gapMachine(sign.charCodeAt(0), side));
  }
}

/** The punctuation character with white space on one side. */
function gapMachine(sign: number, side: 'before' | 'behind'): ByteMachine {
  type Place = 'sign' | 'gap' | 'end' | number;
  return machineOf<Place>({
    start: side === 'behind' ? 'sign' : 'gap',
    key: (place) => place,
    isFinal: (place) => place === 'end' || (side === 'behind' && place !== 'sign'),
    edges: (place) => {
      const edges: { low: number; high: number; target: Place }[] = [];
      const one = (byte: number, target: Place): void => void edges.push({ low: byte, high: byte, target });
      if (place === 'end') return edges;
      if (side === 'before') one(sign, 'end');
      else if (place === 'sign') one(sign, 'gap');
      if (place === 'gap') {
        one(SPACE, INDENTATION_LIMIT);
        one(LINE_FEED, 0);
      }
      if (typeof place === 'number' && place < INDENTATION_LIMIT) one(SPACE, place + 1);
      return edges;
    },
  });
}
