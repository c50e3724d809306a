/** Arguments of tools that stand as plain text in an answer: what they are follows from the tool's JSON schema. */

/** Types that a schema names; empty: it names none. */
function typesOf(schema: object | null): ReadonlySet<unknown> {
  const { type, anyOf, oneOf } = (schema ?? {}) as { type?: unknown; anyOf?: unknown; oneOf?: unknown };
  if (type !== undefined) return new Set(Array.isArray(type) ? type : [type]);
  const choices: unknown[] = [anyOf, oneOf].flatMap((list): unknown[] => (Array.isArray(list) ? list : []));
  return new Set(
    choices.flatMap((choice) => (typeof choice === 'object' && choice !== null ? [...typesOf(choice)] : [])),
  );
}

/** Whether a value can be nothing but text. */
export function isText(schema: object | null): boolean {
  const types = typesOf(schema);
  if (types.size === 1) return types.has('string');
  const { enum: values } = (schema ?? {}) as { enum?: unknown };
  return types.size === 0 && Array.isArray(values) && values.every((value) => typeof value === 'string');
}

/**
 * A whole value as JSON, where it may be something else than text (`isText`): what is JSON of a type that the schema takes stays, as does a
 * text that is JSON already, which is how a forced call has it; anything else is text.
 */
export function jsonOfText(text: string, schema: object | null): string {
  const types = typesOf(schema);
  try {
    const value: unknown = JSON.parse(text);
    if (types.size === 0 || !types.has('string') || typesHave(types, value)) return text.trim();
  } catch {
    // Python's words for JSON's.
    const word = new Map([
      ['True', 'true'],
      ['False', 'false'],
      ['None', 'null'],
    ]).get(text.trim());
    if (word !== undefined && !types.has('string')) return word;
  }
  return JSON.stringify(text);
}

function typesHave(types: ReadonlySet<unknown>, value: unknown): boolean {
  if (value === null) return types.has('null');
  if (Array.isArray(value)) return types.has('array');
  return types.has(typeof value) || (Number.isInteger(value) && types.has('integer'));
}
