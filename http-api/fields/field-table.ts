import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { issueText } from './issue-text.js';

/**
 * The handling of each field of an endpoint's requests. A field in none of the lists is refused, unless its name begins as OWN_FIELD says. docs/http.md has the same tables; a test
 * keeps both equal.
 */
export interface FieldTable<Shape extends z.ZodRawShape> {
  /** Fields that are supported. docs/http.md has the description of each schema. */
  done: Shape;
  /** Fields that cannot change an answer: any value is accepted. */
  ignored: readonly string[];
  /** Fields that would change an answer and are not supported. Only these values are accepted, because they change nothing. */
  neutral: Readonly<Record<string, readonly unknown[]>>;
  /** Fields that would change an answer with any value: the reason for the refusal, or an alternative. */
  refused: Readonly<Record<string, string>>;
}

export type Fields<Table> = Table extends FieldTable<infer Shape> ? z.infer<z.ZodObject<Shape>> : never;

/** Names that clients and programs between client and server give to their own fields. */
const OWN_FIELD = /^(?:x[-_]|litellm_)/;
/** Most characters of a value or a name that a message repeats. */
const SHOWN_LIMIT = 60;

/**
 * Makes a reader of requests' bodies, or of one property of them, by a table. null counts as absent. The reader throws REQUEST_INVALID with the
 * field. `within`: the property's name; empty: the body itself.
 */
export function fieldReader<Shape extends z.ZodRawShape>(
  table: FieldTable<Shape>,
  within = '',
): (body: unknown) => z.infer<z.ZodObject<Shape>> {
  const schema = z.object(table.done);
  return (body) => {
    const given = new Map(Object.entries(requireObject(body, within)).filter(([, value]) => value !== null));
    for (const [name, value] of given) requireKnown(table, name, value, within);
    const done = Object.fromEntries([...given].filter(([name]) => Object.hasOwn(table.done, name)));
    const parsed = schema.safeParse(done, { error: issueText });
    if (parsed.success) return parsed.data;
    throw wrongField(parsed.error.issues, within);
  };
}

function requireObject(body: unknown, within: string): object {
  if (typeof body === 'object' && body !== null && !Array.isArray(body)) return body;
  if (within !== '') throw invalidField(within, `${within}: it must be an object`);
  throw new OdmoeError(
    'REQUEST_INVALID',
    'the body of the request is no JSON object; send one, with content-type application/json',
  );
}

function requireKnown<Shape extends z.ZodRawShape>(
  table: FieldTable<Shape>,
  name: string,
  value: unknown,
  within: string,
): void {
  if (Object.hasOwn(table.done, name) || table.ignored.includes(name) || OWN_FIELD.test(name)) return;
  const field = pathText([within, name.slice(0, SHOWN_LIMIT)]);
  const shown = JSON.stringify(field);
  const reason = Object.hasOwn(table.refused, name) ? table.refused[name] : undefined;
  if (reason !== undefined) throw invalidField(field, `the field ${shown} is not supported: ${reason}`);
  const neutral = Object.hasOwn(table.neutral, name) ? table.neutral[name] : undefined;
  if (neutral === undefined) throw invalidField(field, `the field ${shown} is not known; leave it out`);
  if (neutral.some((taken) => isDeepStrictEqual(taken, value))) return;
  const values = neutral.map((taken) => JSON.stringify(taken)).join(' or ');
  throw invalidField(field, `the field ${shown} is supported as ${values} only; leave it out`);
}

/** The first issue that a schema found, as an error with the field's path ("messages[2].role"). */
export function wrongField(issues: readonly z.core.$ZodIssue[], within = ''): OdmoeError {
  const { path, message } = deepestIssue(issues, [within]);
  const field = pathText(path);
  return invalidField(field, `${field}: ${message}`);
}

export function invalidField(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}

interface FoundIssue {
  path: readonly PropertyKey[];
  message: string;
}

/** For a union, the issue of the branch that matched furthest is reported. */
function deepestIssue(issues: readonly z.core.$ZodIssue[], before: readonly PropertyKey[]): FoundIssue {
  const [issue] = issues;
  if (issue === undefined) return { path: before, message: 'it is not valid' };
  const path = [...before, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    return {
      path: [...path, issue.keys[0]?.slice(0, SHOWN_LIMIT) ?? ''],
      message: 'the field is not known; leave it out',
    };
  }
  if (issue.code !== 'invalid_union') return { path, message: issue.message };
  const branches = issue.errors.filter((branch) => branch.length > 0).map((branch) => deepestIssue(branch, path));
  const furthest = branches.filter((branch) => branch.path.length > path.length);
  return furthest.sort((a, b) => b.path.length - a.path.length)[0] ?? { path, message: issue.message };
}

function pathText(path: readonly PropertyKey[]): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += text === '' ? String(part) : `.${String(part)}`;
  }
  return text;
}
