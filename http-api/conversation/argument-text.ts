/** Arguments of tools that stand as plain text in an answer. The tool's JSON schema decides their types. */

/** Types that a schema names; empty: none. */
function typesOf(schema: object | null): ReadonlySet<unknown> {
  const { type, anyOf, oneOf } = (schema ?? {}) as { type?: unknown; anyOf?: unknown; oneOf?: unknown };
  if (type !== undefined) return new Set(Array.isArray(type) ? type : [type]);
  const choices: unknown[] = [anyOf, oneOf].flatMap((list): unknown[] => (Array.isArray(list) ? list : []));
  return new Set(
    choices.flatMap((choice) => (typeof choice === 'object' && choice !== null ? [...typesOf(choice)] : [])),
  );
}

/** Tells whether a value can only be text. */
export function isText(schema: object | null): boolean {
  const types = typesOf(schema);
  if (types.size === 1) return types.has('string');
  const { enum: values } = (schema ?? {}) as { enum?: unknown };
  return types.size === 0 && Array.isArray(values) && values.every((value) => typeof value === 'string');
}

/**
 * Turns a whole value that may be something else than text (`isText`) into JSON. A text that is JSON of an allowed type stays as it is, and
 * so does a text that is already a JSON string (a forced call writes it so). Any other value becomes a string.
 */
export function jsonOfText(text: string, schema: object | null): string {
  const types = typesOf(schema);
  try {
    const value: unknown = JSON.parse(text);
    if (types.size === 0 || !types.has('string') || typesHave(types, value)) return text.trim();
  } catch {
    // Maps Python's words to those of JSON.
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
