import type { z } from 'zod';

/** Names for kinds of values in messages to clients. */
const KINDS: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  tuple: 'a list',
  object: 'an object',
  record: 'an object',
  null: 'null',
};
const MUST_BE = 'it must be ';
const MISSING = 'it is missing; ';

/** Describes the required value of a field, if the schema has no message of its own: for `safeParse(value, { error: issueText })`. */
export function issueText(issue: z.core.$ZodRawIssue): string {
  if (issue.code === 'invalid_key') return issue.issues[0]?.message ?? 'a name in it is not valid';
  const wanted = wantedBy(issue);
  if (wanted === null) return 'it is not valid';
  return `${issue.input === undefined ? MISSING : ''}${MUST_BE}${wanted}`;
}

function wantedBy(issue: z.core.$ZodRawIssue): string | null {
  if (issue.code === 'invalid_type') return KINDS[issue.expected] ?? null;
  if (issue.code === 'invalid_value') return issue.values.map((value) => JSON.stringify(value)).join(' or ');
  if (issue.code === 'too_small') return sizeText(issue.origin, 'at least', Number(issue.minimum));
  if (issue.code === 'too_big') return sizeText(issue.origin, 'at most', Number(issue.maximum));
  return issue.code === 'invalid_union' ? anyOf(issue.errors) : null;
}

function sizeText(origin: string, bound: 'at least' | 'at most', size: number): string {
  if (origin === 'string') return `${bound} ${size} ${size === 1 ? 'character' : 'characters'} long`;
  if (origin === 'array') return `a list of ${bound} ${size} ${size === 1 ? 'entry' : 'entries'}`;
  return `${bound} ${size}`;
}

/** null: the branches cannot be described in a few words. */
function anyOf(branches: readonly (readonly z.core.$ZodIssue[])[]): string | null {
  const wanted = branches.map(([issue]) => {
    const text = issue?.message.replace(MISSING, '') ?? '';
    return issue?.path.length === 0 && text.startsWith(MUST_BE) ? text.slice(MUST_BE.length) : null;
  });
  return wanted.length === 0 || wanted.includes(null) ? null : [...new Set(wanted)].join(' or ');
}
