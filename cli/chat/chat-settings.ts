import { nearestKey } from '../../shared/base/text/nearest-key.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ANSWER_LENGTH_RANGE } from '../client/generation-flags.js';
import {
  ANSWER_PENALTY_RANGE,
  describeRange,
  isInRange,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
  type NumberRange,
} from '../../shared/wire/sampling-options.js';
import type { SamplingMessage } from '../../shared/wire/messages.js';

/** The settings that /set changes. */
export interface TerminalChatSettings {
  readonly sampling: SamplingMessage;
  /** null: as many as fit into the context. */
  readonly maxTokens: number | null;
}

interface Setting {
  range: NumberRange;
  /** The meaning of the setting when it is off. */
  off: string;
  /** Reads the value; null: off. */
  read(settings: TerminalChatSettings): number | null;
  write(settings: TerminalChatSettings, value: number | null): TerminalChatSettings;
}

const SETTINGS: Readonly<Record<string, Setting>> = {
  temperature: ofSampling('temperature', 0, TEMPERATURE_RANGE, 'the most likely token'),
  top_p: ofSampling('topP', 1, PROBABILITY_RANGE, 'all tokens'),
  top_k: ofSampling('topK', 0, TOP_K_RANGE, 'all tokens'),
  min_p: ofSampling('minP', 0, PROBABILITY_RANGE, 'all tokens'),
  seed: {
    range: SEED_RANGE,
    off: 'chosen anew for each answer',
    read: ({ sampling }) => sampling.seed ?? null,
    write: (settings, value) => {
      const sampling: SamplingMessage = { ...settings.sampling };
      if (value === null) delete sampling.seed;
      else sampling.seed = value;
      return { ...settings, sampling };
    },
  },
  max_tokens: {
    range: ANSWER_LENGTH_RANGE,
    off: 'as many as the context has room for',
    read: ({ maxTokens }) => maxTokens,
    write: (settings, maxTokens) => ({ ...settings, maxTokens }),
  },
  repetition_penalty: ofSampling('repetitionPenalty', 1, REPETITION_PENALTY_RANGE, 'none'),
  presence_penalty: ofSampling('presencePenalty', 0, ANSWER_PENALTY_RANGE, 'none'),
  frequency_penalty: ofSampling('frequencyPenalty', 0, ANSWER_PENALTY_RANGE, 'none'),
};

const OFF = 'off';

/** Returns the settings with that one changed; "off" resets it. Throws USAGE for an unknown key, and for a value out of its range. */
export function changeSetting(settings: TerminalChatSettings, key: string, value: string): TerminalChatSettings {
  const setting = requireSetting(key);
  if (value === OFF) return setting.write(settings, null);
  const number = value.trim() === '' ? NaN : Number(value);
  if (!isInRange(number, setting.range) || (setting.range.whole && !/^\d+$/.test(value))) {
    throw new OdmoeError('USAGE', `${key} is ${describeRange(setting.range)}, or ${OFF}; "${value}" is not`);
  }
  return setting.write(settings, number);
}

/** One line per setting. */
export function settingLines(settings: TerminalChatSettings): string[] {
  const width = Math.max(...Object.keys(SETTINGS).map((key) => key.length));
  return Object.entries(SETTINGS).map(([key, setting]) => {
    const value = setting.read(settings);
    return `${key.padEnd(width)}  ${value ?? `${OFF}: ${setting.off}`}`;
  });
}

/** Makes the setting of one sampling field of the request; `off`: the value that has no effect. */
function ofSampling(
  property: Exclude<keyof SamplingMessage, 'seed' | 'logitBias' | 'outputFormat'>,
  offValue: number,
  range: NumberRange,
  off: string,
): Setting {
  return {
    range,
    off,
    read: ({ sampling }) => {
      const value = sampling[property] ?? offValue;
      return value === offValue ? null : value;
    },
    write: (settings, value) => ({ ...settings, sampling: { ...settings.sampling, [property]: value ?? offValue } }),
  };
}

function requireSetting(key: string): Setting {
  const setting = Object.hasOwn(SETTINGS, key) ? SETTINGS[key] : undefined;
  if (setting !== undefined) return setting;
  const keys = Object.keys(SETTINGS);
  const near = nearestKey(key, keys);
  const advice = near === null ? `there are ${keys.join(', ')}` : `did you mean ${near}?`;
  throw new OdmoeError('USAGE', `there is no setting ${key}; ${advice}`);
}
