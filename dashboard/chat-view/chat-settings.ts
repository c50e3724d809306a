/** What an answer is asked for with; a null is left to main. */
export interface PageChatSettings {
  /** Empty: no such message. */
  system: string;
  temperature: number;
  topP: number;
  maxTokens: number | null;
  /** Null: drawn for each answer. */
  seed: number | null;
}

/** With the seed that was drawn. */
export type AskedSettings = PageChatSettings & { seed: number };

export const SETTING_RANGES = {
  temperature: { least: 0, most: 2 },
  topP: { least: 0, most: 1 },
  maxTokens: { least: 1, most: 1_000_000 },
  /** Of the seeds that main takes those that a number in JavaScript holds exactly. */
  seed: { least: 0, most: Number.MAX_SAFE_INTEGER },
} as const;

export type NumberName = keyof typeof SETTING_RANGES;

export const NUMBER_TITLES: Record<NumberName, string> = {
  temperature: 'Temperature',
  topP: 'Top p',
  maxTokens: 'Most tokens',
  seed: 'Seed',
};

/** What the fields hold, right or wrong. */
export type TypedSettings = Record<NumberName | 'system', string>;

export const DEFAULT_SETTINGS: TypedSettings = { system: '', temperature: '0.7', topP: '1', maxTokens: '', seed: '' };

const NUMBER_NAMES = ['temperature', 'topP', 'maxTokens', 'seed'] as const satisfies readonly NumberName[];

/** What was typed as a number within its range. Empty: null. Undefined: it is no such number. */
export function settingNumber(typed: string, name: NumberName): number | null | undefined {
  if (typed.trim() === '') return null;
  const value = Number(typed);
  const { least, most } = SETTING_RANGES[name];
  return value >= least && value <= most && (!isWhole(name) || Number.isInteger(value)) ? value : undefined;
}

/** Whole numbers may be left empty, others not. */
function isWhole(name: NumberName): boolean {
  return name === 'maxTokens' || name === 'seed';
}

/** What a field that holds something wrong needs; empty: it is right. */
export function numberProblem(typed: string, name: NumberName): string {
  const value = settingNumber(typed, name);
  if (value !== undefined && (value !== null || isWhole(name))) return '';
  const { least, most } = SETTING_RANGES[name];
  return isWhole(name)
    ? `give a whole number from ${least} to ${most}, or nothing`
    : `give a number from ${least} to ${most}`;
}

/** The first field that is wrong, and what it needs; empty: all are right. */
export function settingsProblem(typed: TypedSettings): string {
  const wrong = NUMBER_NAMES.find((name) => numberProblem(typed[name], name) !== '');
  return wrong === undefined ? '' : `${NUMBER_TITLES[wrong]}: ${numberProblem(typed[wrong], wrong)}`;
}

/** Of fields that are all right. */
export function chatSettings(typed: TypedSettings): PageChatSettings {
  return {
    system: typed.system,
    temperature: settingNumber(typed.temperature, 'temperature') ?? 0,
    topP: settingNumber(typed.topP, 'topP') ?? 1,
    maxTokens: settingNumber(typed.maxTokens, 'maxTokens') ?? null,
    seed: settingNumber(typed.seed, 'seed') ?? null,
  };
}
