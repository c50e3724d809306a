import {
  either,
  otherTextsAutomaton,
  textsAutomaton,
  withLength,
  type CharacterAutomaton,
} from './character-automaton.js';
import { ANY_CODE_POINT } from './code-points.js';
import type { GrammarBuilder, GrammarNode } from './grammar.js';
import type { JsonSchema, ObjectRule, SchemaTarget } from './json-schema.js';
import { classOfKey, commonTexts, schemaOfKey } from './schema-rules.js';
import { schemaTakes } from './schema-takes.js';

/** The parts of a grammar that objects are made of. */
export interface ObjectParts {
  valueOf(schema: JsonSchema): GrammarNode;
  text(text: string): GrammarNode;
  /** Each with the white space that may stand beside it. */
  comma: GrammarNode;
  colon: GrammarNode;
  open: GrammarNode;
  close: GrammarNode;
}

interface ListedProperty {
  key: string;
  isRequired: boolean;
  node: GrammarNode;
}

/** Makes the grammar of one object. Its properties come in the order of the schema, then other keys. */
export class ObjectGrammar {
  private listed: readonly ListedProperty[] = [];
  private other: GrammarNode | null = null;
  private least = 0;
  private most = Infinity;
  /** `written` of the properties from a place on, by place and count. */
  private readonly made = new Map<string, GrammarNode | null>();

  constructor(
    private readonly builder: GrammarBuilder,
    private readonly parts: ObjectParts,
  ) {}

  nodeOf(rule: ObjectRule): GrammarNode {
    const { builder, parts } = this;
    this.listed = this.listedOf(rule);
    this.other = this.otherOf(rule);
    const required = this.listed.filter(({ isRequired }) => isRequired).length;
    // Counts are followed only where they say more than the required keys.
    this.least = rule.least <= required ? 0 : rule.least;
    this.most = this.other === null && rule.most >= this.listed.length ? Infinity : rule.most;
    const written = this.written(0, 0);
    const empty = parts.text('}');
    const inside =
      written === null
        ? this.mayEnd(0, 0)
          ? empty
          : builder.choice()
        : this.mayEnd(0, 0)
          ? builder.choice(written, empty)
          : written;
    return builder.sequence(parts.open, inside);
  }

  private listedOf(rule: ObjectRule): ListedProperty[] {
    const { builder, parts } = this;
    // Required keys, and those of a list in propertyNames, are written like listed properties, so none comes twice.
    const named = listedNames(rule.names) ?? [];
    const isMentioned = isAnyMentioned(rule, rule.properties.size + rule.required.size);
    const more = named.filter((key) => !isMentioned || !classOfKey(rule, key).isDefault);
    const keys = new Set([...rule.properties.keys(), ...rule.required, ...more]);
    return [...keys].map((key) => {
      const value = schemaTakes(rule.names, key) ? parts.valueOf(schemaOfKey(rule, key)) : builder.choice();
      const node = builder.sequence(parts.text(JSON.stringify(key)), parts.colon, value);
      return { key, isRequired: rule.required.has(key), node };
    });
  }

  /** A property that is not listed; null: none is written. */
  private otherOf(rule: ObjectRule): GrammarNode | null {
    const { builder, parts } = this;
    const { others, names } = rule;
    if (listedNames(names) !== null) return null;
    const listed = this.listed.map(({ key }) => key);
    const isMentioned = isAnyMentioned(rule, listed.length);
    const written = others.filter(({ schema, isDefault }) => schema.kind !== 'never' && !(isDefault && isMentioned));
    if (written.length === 0) return null;
    const outside = listed.length === 0 ? null : otherTextsAutomaton(listed);
    const allowed = commonTexts(outside, namesAutomaton(names, new Set()), 'propertyNames');
    const options = written.map(({ keys, schema }) => {
      const taken = commonTexts(allowed, keys, 'patternProperties');
      const key =
        taken === null
          ? builder.repeat(builder.jsonCharacter(ANY_CODE_POINT), 0, Infinity)
          : builder.jsonCharacters(taken);
      return builder.sequence(parts.text('"'), key, parts.text('"'), parts.colon, parts.valueOf(schema));
    });
    return builder.choice(...options);
  }

  /** True if the object may end before the properties from a place on, behind `count` others. */
  private mayEnd(from: number, count: number): boolean {
    return count >= this.least && !this.listed.slice(from).some(({ isRequired }) => isRequired);
  }

  /** The properties from a place on, at least one, without the comma before them, to the end of the object; null: there are none. */
  private written(from: number, count: number): GrammarNode | null {
    const key = `${from} ${count}`;
    const known = this.made.get(key);
    if (known !== undefined) return known;
    const node = count >= this.most ? null : this.writtenFrom(from, count);
    this.made.set(key, node);
    return node;
  }

  private writtenFrom(from: number, count: number): GrammarNode | null {
    const { builder, parts, other, least, most } = this;
    const property = this.listed[from];
    if (property === undefined) {
      if (other === null) return null;
      const more = builder.sequence(parts.comma, other);
      return builder.sequence(
        other,
        builder.repeat(more, Math.max(0, least - count - 1), most - count - 1),
        parts.close,
      );
    }
    const behind = this.behind(from + 1, this.counted(count + 1));
    const here = behind === null ? null : builder.sequence(property.node, behind);
    const later = property.isRequired ? null : this.written(from + 1, count);
    if (here === null || later === null) return here ?? later;
    return builder.choice(here, later);
  }

  /** The rest of an object behind a property: more of them, or the end; null: neither is possible. */
  private behind(from: number, count: number): GrammarNode | null {
    const { builder, parts } = this;
    const written = this.written(from, count);
    const more = written === null ? null : builder.sequence(parts.comma, written);
    if (!this.mayEnd(from, count)) return more;
    return more === null ? parts.close : builder.choice(more, parts.close);
  }

  /** Counts that make no difference are one. */
  private counted(count: number): number {
    return this.most === Infinity ? Math.min(count, this.least) : count;
  }
}

/** True if the schema says which keys there are: then no others are written. `listed`: number of listed keys. */
function isAnyMentioned({ others, isClosed }: ObjectRule, listed: number): boolean {
  return listed > 0 || isClosed || others.some(({ isDefault }) => !isDefault);
}

/** The keys that a schema of keys lists; null: it gives no list. */
function listedNames(schema: JsonSchema): string[] | null {
  if (schema.kind === 'reference') return schema.target.schema === null ? [] : listedNames(schema.target.schema);
  if (schema.kind !== 'values') return null;
  return schema.values.filter((value) => typeof value === 'string').filter((text) => schemaTakes(schema, text));
}

/** Accepts the texts that a schema of keys takes; null: any text. A circle of references takes none. */
function namesAutomaton(schema: JsonSchema, path: ReadonlySet<SchemaTarget>): CharacterAutomaton | null {
  const where = 'propertyNames';
  switch (schema.kind) {
    case 'any':
      return null;
    case 'never':
      return textsAutomaton([]);
    case 'values': {
      const texts = schema.values.filter((value) => typeof value === 'string');
      return textsAutomaton(texts.filter((text) => schemaTakes(schema, text)));
    }
    case 'union': {
      const options = schema.options.map((option) => namesAutomaton(option, path));
      return options.reduce((one, other) => (one === null || other === null ? null : either(one, other, where)));
    }
    case 'reference': {
      const { target } = schema;
      if (path.has(target) || target.schema === null) return textsAutomaton([]);
      return namesAutomaton(target.schema, new Set([...path, target]));
    }
    case 'typed': {
      if (!schema.types.has('string')) return textsAutomaton([]);
      const { pattern, least, most } = schema.string;
      if (least === 0 && most === Infinity) return pattern;
      return withLength(pattern ?? otherTextsAutomaton([]), { least, most }, where);
    }
  }
}
