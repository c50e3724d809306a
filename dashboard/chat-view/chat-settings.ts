/** What the settings of the chat hold; a null is left to main. */
export interface ChatSettings {
  /** Empty: no such message. */
  system: string;
  temperature: number;
  topP: number;
  maxTokens: number | null;
  /** Null: drawn for each answer. */
  seed: number | null;
}

/** With the seed that was drawn. */
export type AskedSettings = ChatSettings & { seed: number };

export const DEFAULT_SETTINGS: ChatSettings = { system: '', temperature: 0.7, topP: 1, maxTokens: 512, seed: null };

export const SETTING_RANGES = {
  temperature: { least: 0, most: 2 },
  topP: { least: 0, most: 1 },
  maxTokens: { least: 1, most: 1_000_000 },
  /** Of the seeds that main takes those that a number in JavaScript holds exactly. */
  seed: { least: 0, most: Number.MAX_SAFE_INTEGER },
} as const;

/** What was typed as a number within its range. Empty: null. Undefined: it is no such number. */
export function settingNumber(typed: string, name: keyof typeof SETTING_RANGES): number | null | undefined {
  if (typed.trim() === '') return null;
  const value = Number(typed);
  const { least, most } = SETTING_RANGES[name];
  const isWhole = name === 'temperature' || name === 'topP' || Number.isInteger(value);
  return value >= least && value <= most && isWhole ? value : undefined;
}
