import type { JsonValue, TypedSchema, UnionSchema } from './json-schema.js';

/** A schema as it is written, with its conjunctions. */
export type ReadSchema =
  | { kind: 'any' }
  | { kind: 'never' }
  | ReadValues
  | UnionSchema<ReadSchema>
  | { kind: 'reference'; target: ReadTarget }
  | TypedSchema<ReadSchema>
  /** Accepts the values that all parts accept. */
  | { kind: 'all'; parts: readonly ReadSchema[]; where: string };

/** The values of enum and const. */
export interface ReadValues {
  kind: 'values';
  values: readonly JsonValue[];
  where: string;
}

/** The target of a $ref; set when the whole schema has been read. */
export interface ReadTarget {
  schema: ReadSchema | null;
}

export const ANY: ReadSchema = { kind: 'any' };
export const NEVER: ReadSchema = { kind: 'never' };

/** The schema of the values that all parts accept. */
export function allOf(parts: readonly ReadSchema[], where: string): ReadSchema {
  const [first, second] = parts.filter(({ kind }) => kind !== 'any');
  if (first === undefined) return ANY;
  return second === undefined ? first : { kind: 'all', parts, where };
}
