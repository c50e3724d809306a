import { isDeepStrictEqual } from 'node:util';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type ConfigUsage, isObject, shortJson, shortName } from './config-reader.js';
import { EXPLAINED_KEYS, EXPLAINED_PATTERNS, type ExplainedKeys, ROPE_KEYS } from './explained-keys.js';

/** Objects of config.json that describe ropes; their keys are explained separately. */
const ROPES: ReadonlySet<string> = new Set(['rope_scaling', 'rope_parameters']);
/** Most keys that a message names. */
const NAMED_KEYS = 5;

type ConfigValues = Readonly<Record<string, unknown>>;

/**
 * Refuses a config.json with a value that no code has read and no entry explains, because it might change the model's answers. Null values are
 * ignored. `own`: the family's explanations.
 * @throws MODEL_UNSUPPORTED
 */
export function refuseUnreadKeys(
  values: ConfigValues,
  usage: ConfigUsage,
  path: string,
  own: ExplainedKeys = {},
): void {
  const unread = [...unreadKeys(values, '', usage, { ...EXPLAINED_KEYS, ...own })];
  if (unread.length === 0) return;
  const named = unread.slice(0, NAMED_KEYS).map(({ key, value }) => `${shortName(key)} is ${shortJson(value)}`);
  const more = unread.length > NAMED_KEYS ? ` and ${unread.length - NAMED_KEYS} more` : '';
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${path}: ${named.join(', ')}${more}: it is not known what this changes, so that answers might be wrong; choose a checkpoint ` +
      'without it, or take the key out of config.json if you know that it changes no answer',
  );
}

interface UnreadKey {
  key: string;
  value: unknown;
}

function* unreadKeys(
  values: ConfigValues,
  prefix: string,
  usage: ConfigUsage,
  explained: ExplainedKeys,
): Generator<UnreadKey> {
  for (const [key, value] of Object.entries(values)) {
    const path = `${prefix}${key}`;
    if (isObject(value) && usage.entered.has(path)) {
      yield* unreadKeys(value, `${path}.`, usage, ROPES.has(key) ? ROPE_KEYS : explained);
    } else if ((value ?? null) !== null && !usage.read.has(path) && !isExplained(key, value, values, explained)) {
      yield { key: path, value };
    }
  }
}

function isExplained(key: string, value: unknown, values: ConfigValues, explained: ExplainedKeys): boolean {
  const entry = Object.hasOwn(explained, key) ? explained[key] : undefined;
  if (entry === undefined) return EXPLAINED_PATTERNS.some(({ pattern }) => pattern.test(key));
  const { only, all, when, unless } = entry;
  if (unless !== undefined && values[unless] === true) return false;
  if (only === undefined && all === undefined && when === undefined) return true;
  return (
    (only ?? []).some((neutral) => isDeepStrictEqual(neutral, value)) ||
    (all !== undefined && Array.isArray(value) && value.every((item) => item === all)) ||
    (when !== undefined && values[when[0]] === when[1])
  );
}
