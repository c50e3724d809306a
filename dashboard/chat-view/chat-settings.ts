/** The settings of a request for an answer; null leaves the choice to main. */
export interface PageChatSettings {
  /** Empty: no system message. */
  system: string;
  temperature: number;
  topP: number;
  maxTokens: number | null;
  /** Null: a random seed for each answer. */
  seed: number | null;
}

/** The settings with the seed that was drawn or set. */
export type AskedSettings = PageChatSettings & { seed: number };

export const SETTING_RANGES = {
  temperature: { least: 0, most: 2 },
  topP: { least: 0, most: 1 },
  maxTokens: { least: 1, most: 1_000_000 },
  /** The seeds of main that a JavaScript number holds exactly. */
  seed: { least: 0, most: Number.MAX_SAFE_INTEGER },
} as const;

export type NumberName = keyof typeof SETTING_RANGES;

export const NUMBER_TITLES: Record<NumberName, string> = {
  temperature: 'Temperature',
  topP: 'Top p',
  maxTokens: 'Most tokens',
  seed: 'Seed',
};

/** The texts of the fields, valid or not. */
export type TypedSettings = Record<NumberName | 'system', string>;

export const DEFAULT_SETTINGS: TypedSettings = { system: '', temperature: '0.7', topP: '1', maxTokens: '', seed: '' };

const NUMBER_NAMES = ['temperature', 'topP', 'maxTokens', 'seed'] as const satisfies readonly NumberName[];

/** The typed text as a number within its range. Null: the text is empty. Undefined: it is no such number. */
export function settingNumber(typed: string, name: NumberName): number | null | undefined {
  if (typed.trim() === '') return null;
  const value = Number(typed);
  const { least, most } = SETTING_RANGES[name];
  return value >= least && value <= most && (!isWhole(name) || Number.isInteger(value)) ? value : undefined;
}

/** Tells whether the setting is a whole number. These may be empty, others not. */
function isWhole(name: NumberName): boolean {
  return name === 'maxTokens' || name === 'seed';
}

/** The requirement for a field with a wrong value; empty: the value is right. */
export function numberProblem(typed: string, name: NumberName): string {
  const value = settingNumber(typed, name);
  if (value !== undefined && (value !== null || isWhole(name))) return '';
  const { least, most } = SETTING_RANGES[name];
  return isWhole(name)
    ? `give a whole number from ${least} to ${most}, or nothing`
    : `give a number from ${least} to ${most}`;
}

/** The first wrong field with its requirement; empty: all are right. */
export function settingsProblem(typed: TypedSettings): string {
  const wrong = NUMBER_NAMES.find((name) => numberProblem(typed[name], name) !== '');
  return wrong === undefined ? '' : `${NUMBER_TITLES[wrong]}: ${numberProblem(typed[wrong], wrong)}`;
}

/** The settings from fields that are all right. */
export function chatSettings(typed: TypedSettings): PageChatSettings {
  return {
    system: typed.system,
    temperature: settingNumber(typed.temperature, 'temperature') ?? 0,
    topP: settingNumber(typed.topP, 'topP') ?? 1,
    maxTokens: settingNumber(typed.maxTokens, 'maxTokens') ?? null,
    seed: settingNumber(typed.seed, 'seed') ?? null,
  };
}
