/** Judges by config.json alone whether odmoe runs a model, what it leaves out, or what it lacks. */
import { DenseModelError, MissingPartError } from '../model-config/refused-model.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isObject } from '../model-config/config-reader.js';
import type { ModelConfig } from '../model-config/model-family.js';
import { parseModelConfig } from './model-config.js';
import { unreadArchitecture } from './unread-architectures.js';

/** Objects of config.json that describe other towers, and what these are for. */
const TOWERS: readonly (readonly [keys: readonly string[], what: string])[] = [
  [['vision_config', 'vision_tower', 'visual'], 'images'],
  [['audio_config', 'audio_encoder_config'], 'audio'],
];

export interface ConfigVerdict {
  /** `runs-without`: text runs, and something that the checkpoint has does not. */
  readonly verdict: 'runs' | 'runs-without' | 'not-yet' | 'never';
  /** Values of `architectures`, and `model_type`. */
  readonly architectures: readonly string[];
  /** The family that reads it; null: none does. */
  readonly family: string | null;
  /** Parts of the checkpoint that odmoe leaves out. */
  readonly without: readonly string[];
  /** Operators or formats that odmoe lacks. */
  readonly missing: readonly string[];
  /** Why it does not run, in words; null where it runs. */
  readonly reason: string | null;
}

/**
 * Judges the contents of a config.json. `path` stands in messages.
 * @throws MODEL_CORRUPT if the file contradicts itself
 */
export function judgeConfig(value: unknown, path: string): ConfigVerdict {
  const architectures = namesOf(value);
  try {
    const { family, config } = parseModelConfig(value, path);
    const without = leftOutOf(value, config);
    const verdict = without.length > 0 ? 'runs-without' : 'runs';
    return { verdict, architectures, family: family.name, without, missing: [], reason: null };
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_UNSUPPORTED') throw thrown;
    const unread = unreadArchitecture(architectures);
    const none = { architectures, family: null, without: [], reason: thrown.message };
    if (thrown instanceof DenseModelError) return { verdict: 'never', missing: [], ...none };
    if (thrown instanceof MissingPartError) return { verdict: 'not-yet', missing: [thrown.part], ...none };
    if (unread === null) return { verdict: 'not-yet', missing: [], ...none };
    return 'never' in unread
      ? { verdict: 'never', missing: [], ...none }
      : { verdict: 'not-yet', missing: unread.missing, ...none };
  }
}

/** Values of `architectures`, and `model_type`. */
function namesOf(value: unknown): string[] {
  if (!isObject(value)) return [];
  const named: unknown[] = Array.isArray(value.architectures) ? value.architectures : [];
  const names = [...named, value.model_type].filter((name): name is string => typeof name === 'string');
  return [...new Set(names)];
}

function leftOutOf(value: unknown, { layout, draftHead }: ModelConfig): string[] {
  const towers = TOWERS.filter(([keys]) => isObject(value) && keys.some((key) => isObject(value[key])));
  const head = layout.guessing.count > 0 && draftHead === undefined ? ['its layers that draft tokens'] : [];
  return [...towers.map(([, what]) => what), ...head];
}
