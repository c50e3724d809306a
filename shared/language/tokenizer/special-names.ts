import { requirePresent } from '../../base/errors/assert-invariant.js';
import type { ChatMessage } from '../../wire/messages.js';
import type { ChatContext } from './tokenizer.js';

/** Messages whose texts other people than the prompt's author may have written. An assistant's may hold what its template looks for. */
const GUARDED_ROLES: ReadonlySet<string> = new Set(['user', 'tool', 'function']);
/** Template variables with such texts. */
const GUARDED_VARIABLES = ['tools', 'documents'];
/** Private characters of Unicode; one that a prompt does not hold is its guard. */
const [FIRST_GUARD, LAST_GUARD] = [0x100000, 0x10fffd];

/** The input of a chat template, in which no text of a user or a tool holds the name of a special token. */
export interface GuardedChat {
  messages: readonly ChatMessage[];
  context: ChatContext;
  /** The character that stands inside such names, and nowhere else; null: there are none. */
  guard: string | null;
}

/** Finds the names of special tokens in texts of users and tools, so that they stay texts: a forged turn would be obeyed otherwise. */
export class SpecialNames {
  /** Null: the tokenizer has no special tokens. */
  private readonly pattern: RegExp | null;

  constructor(names: Iterable<string>) {
    const escaped = [...names]
      .filter((name) => name !== '')
      .sort((a, b) => b.length - a.length)
      .map((name) => name.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'));
    this.pattern = escaped.length === 0 ? null : new RegExp(escaped.join('|'), 'u');
  }

  guarded(messages: readonly ChatMessage[], context: ChatContext): GuardedChat {
    const texts = textsOf([
      messages.filter(({ role }) => GUARDED_ROLES.has(role)).map(({ content }) => content),
      GUARDED_VARIABLES.map((name) => context.values[name]),
    ]);
    if (!texts.some((text) => this.pattern?.test(text) === true)) return { messages, context, guard: null };
    const guard = unusedCharacter(textsOf([messages.map(({ content }) => content), Object.values(context.values)]));
    const guardText = (text: string): string => this.broken(text, guard);
    const values: Record<string, unknown> = { ...context.values };
    for (const name of GUARDED_VARIABLES) if (name in values) values[name] = withTexts(values[name], guardText);
    return {
      messages: messages.map((message) =>
        GUARDED_ROLES.has(message.role) ? { ...message, content: guardText(message.content) } : message,
      ),
      context: { ...context, values },
      guard,
    };
  }

  /** The text with the guard behind the first character of each name. */
  private broken(text: string, guard: string): string {
    const { pattern } = this;
    if (pattern === null) return text;
    let [broken, rest] = ['', text];
    for (let found = pattern.exec(rest); found !== null; found = pattern.exec(rest)) {
      const first = String.fromCodePoint(rest.codePointAt(found.index) ?? 0);
      const end = found.index + first.length;
      broken += rest.slice(0, end) + guard;
      rest = rest.slice(end);
    }
    return broken + rest;
  }
}

/** All texts in a value, the keys of objects too. */
function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (value instanceof Map) return textsOf([...(value as Map<unknown, unknown>)].flat());
  if (Array.isArray(value)) return value.flatMap(textsOf);
  return isPlainObject(value) ? Object.entries(value).flatMap(textsOf) : [];
}

/** The value with other texts, keys of objects left as they are. */
function withTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (value instanceof Map) {
    return new Map([...(value as Map<unknown, unknown>)].map(([key, inner]) => [key, withTexts(inner, change)]));
  }
  if (Array.isArray(value)) return value.map((item) => withTexts(item, change));
  if (!isPlainObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withTexts(inner, change)]));
}

function isPlainObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

function unusedCharacter(texts: readonly string[]): string {
  const used = new Set(texts.flatMap((text) => [...(text.match(/[\u{100000}-\u{10fffd}]/gu) ?? [])]));
  let unused: string | undefined;
  for (let codePoint = FIRST_GUARD; codePoint <= LAST_GUARD && unused === undefined; codePoint++) {
    const character = String.fromCodePoint(codePoint);
    if (!used.has(character)) unused = character;
  }
  return requirePresent(unused, 'A prompt holds every private character of Unicode.');
}
