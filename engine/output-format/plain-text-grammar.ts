import { textsMachine } from './byte-machine.js';
import { both, textsWithoutAutomaton, withLength } from './character-automaton.js';
import type { GrammarBuilder, GrammarNode, GrammarRule } from './grammar.js';
import type { JsonSchema, SchemaTarget, StringRule, ValuesSchema } from './json-schema.js';
import { schemaTakes } from './schema-takes.js';

/** Makes grammars of the strings that JSON schemas take, written as they are and not as JSON. */
export class PlainTextGrammar {
  /** By the text that may not be held. */
  private readonly rules = new Map<string, Map<SchemaTarget, GrammarRule>>();

  constructor(private readonly builder: GrammarBuilder) {}

  /** `without`: a text that none of them holds. Values that are no strings are left out. */
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

/** Strings with half a character cannot be written. */
function stringsOf({ values, conditions }: ValuesSchema): string[] {
  return values.flatMap((value) => {
    if (typeof value !== 'string' || /\p{Cs}/u.test(value)) return [];
    return conditions.every((condition) => schemaTakes(condition, value)) ? [value] : [];
  });
}
