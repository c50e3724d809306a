import {
  ANSWER_PENALTY_RANGE,
  describeRange,
  isInRange,
  MAX_SEED,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
  type NumberRange,
} from '../../shared/wire/sampling-options.js';
import {
  readFormat,
  readLogitBias,
  readStopTexts,
  readTools,
  readVariables,
  type JsonObject,
  type Read,
} from './setting-texts.js';

/** The settings of a request for an answer; null leaves the choice to main. All values can be written as JSON. */
export interface PageChatSettings {
  /** Empty: no system message. */
  system: string;
  temperature: number;
  topP: number;
  topK: number | null;
  minP: number | null;
  repetitionPenalty: number | null;
  presencePenalty: number | null;
  frequencyPenalty: number | null;
  logitBias: JsonObject | null;
  maxTokens: number | null;
  stop: string[];
  ignoreEos: boolean;
  /** Null: a random seed for each answer. */
  seed: number | null;
  /** Alternatives of each token that main sends; null: ALTERNATIVES. */
  alternatives: number | null;
  arithmetic: 'exact' | null;
  thinking: boolean | null;
  reasoningEffort: string | null;
  templateVariables: JsonObject | null;
  /** `response_format` of the request; null: any text. */
  responseFormat: JsonObject | null;
  /** In the form of OpenAI's API. */
  tools: JsonObject[];
  /** auto, none, required, or the name of a tool. */
  toolChoice: string;
  parallelToolCalls: boolean;
}

/** All that was asked with an answer beside the turns: the settings, with the seed that was drawn or set. */
export type AskedSettings = PageChatSettings & {
  seed: number;
  /** Turns at the conversation's begin that are not sent, because the context has no room for them. Absent: none. */
  droppedTurns?: number;
};

/** Alternatives that are requested for each token where the settings say nothing. */
export const ALTERNATIVES = 5;

interface NumberSetting {
  title: string;
  hint: string;
  range: NumberRange;
  /** Tells whether the field may be empty: main then chooses. */
  mayBeEmpty: boolean;
}

function wholeFrom(least: number, most: number): NumberRange {
  return { least, most, whole: true, zeroIsOff: false };
}

export const NUMBER_SETTINGS = {
  temperature: { title: 'Temperature', hint: '0: the likeliest token', range: TEMPERATURE_RANGE, mayBeEmpty: false },
  topP: { title: 'Top p', hint: '1: all tokens', range: PROBABILITY_RANGE, mayBeEmpty: false },
  topK: { title: 'Top k', hint: 'so many likeliest tokens; 0: all', range: TOP_K_RANGE, mayBeEmpty: true },
  minP: {
    title: 'Min p',
    hint: "least part of the likeliest token's probability",
    range: PROBABILITY_RANGE,
    mayBeEmpty: true,
  },
  repetitionPenalty: {
    title: 'Repetition penalty',
    hint: 'counts prompt and answer; 1: off',
    range: REPETITION_PENALTY_RANGE,
    mayBeEmpty: true,
  },
  presencePenalty: {
    title: 'Presence penalty',
    hint: 'for each token that the answer has; 0: off',
    range: ANSWER_PENALTY_RANGE,
    mayBeEmpty: true,
  },
  frequencyPenalty: {
    title: 'Frequency penalty',
    hint: 'for each time that it has it; 0: off',
    range: ANSWER_PENALTY_RANGE,
    mayBeEmpty: true,
  },
  maxTokens: { title: 'Most tokens', hint: 'empty: what has room', range: wholeFrom(1, 1_000_000), mayBeEmpty: true },
  /** The seeds of main that a JavaScript number holds exactly. */
  seed: { title: 'Seed', hint: 'empty: drawn for each answer', range: wholeFrom(0, MAX_SEED), mayBeEmpty: true },
  alternatives: {
    title: 'Alternatives',
    hint: `of each token; empty: ${ALTERNATIVES}`,
    range: wholeFrom(0, 128),
    mayBeEmpty: true,
  },
} as const satisfies Record<string, NumberSetting>;

export type NumberName = keyof typeof NUMBER_SETTINGS;

/** Settings that are a choice from a list; the first choice is the default. */
export const CHOICE_SETTINGS = {
  thinking: { title: 'Thinking', choices: ['', 'on', 'off'], words: ['as the model has it', 'on', 'off'] },
  reasoningEffort: {
    title: 'Reasoning effort',
    choices: ['', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'],
    words: ['as the model has it', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'],
  },
  ignoreEos: { title: 'Where the model ends', choices: ['', 'yes'], words: ['the answer ends', 'it goes on'] },
  arithmetic: { title: 'Arithmetic', choices: ['', 'exact'], words: ['as main has it', 'exact answers only'] },
  format: {
    title: 'Answer',
    choices: ['', 'json', 'schema'],
    words: ['any text', 'any JSON object', 'JSON that follows the schema'],
  },
  parallelToolCalls: {
    title: 'Calls at a time',
    choices: ['', 'no'],
    words: ['several', 'one'],
  },
} as const;

export type ChoiceName = keyof typeof CHOICE_SETTINGS;

/** Settings that are texts. All but the system message have rules. */
export const TEXT_TITLES = {
  system: 'System message',
  stop: 'Stop texts',
  logitBias: 'Logit bias',
  templateVariables: 'Variables of the chat template',
  schema: 'JSON schema of the answer',
  tools: 'Tools',
  toolChoice: 'Which tool',
} as const;

export type TextName = keyof typeof TEXT_TITLES;
export type SettingName = NumberName | ChoiceName | TextName;

/** The texts of the fields, valid or not. */
export type TypedSettings = Record<SettingName, string>;

export const DEFAULT_SETTINGS: TypedSettings = {
  system: '',
  temperature: '0.7',
  topP: '1',
  topK: '',
  minP: '',
  repetitionPenalty: '',
  presencePenalty: '',
  frequencyPenalty: '',
  logitBias: '',
  maxTokens: '',
  stop: '',
  ignoreEos: '',
  seed: '',
  alternatives: '',
  arithmetic: '',
  thinking: '',
  reasoningEffort: '',
  templateVariables: '',
  format: '',
  schema: '',
  tools: '',
  toolChoice: 'auto',
  parallelToolCalls: '',
};

const NUMBER_NAMES = Object.keys(NUMBER_SETTINGS) as NumberName[];
const CHOICE_NAMES = Object.keys(CHOICE_SETTINGS) as ChoiceName[];
const TEXT_NAMES = Object.keys(TEXT_TITLES) as TextName[];
const SETTING_NAMES: readonly SettingName[] = [...NUMBER_NAMES, ...CHOICE_NAMES, ...TEXT_NAMES];

/** The typed text as a number within its range. Null: the text is empty. Undefined: it is no such number. */
export function settingNumber(typed: string, name: NumberName): number | null | undefined {
  if (typed.trim() === '') return null;
  const value = Number(typed);
  return isInRange(value, NUMBER_SETTINGS[name].range) ? value : undefined;
}

/** The requirement for a field with a wrong value; empty: the value is right. */
export function settingProblem(typed: TypedSettings, name: SettingName): string {
  if (isNumberName(name)) return numberProblem(typed[name], name);
  const read = TEXT_READERS[name]?.(typed);
  return read !== undefined && 'problem' in read ? read.problem : '';
}

function isNumberName(name: SettingName): name is NumberName {
  return name in NUMBER_SETTINGS;
}

function numberProblem(typed: string, name: NumberName): string {
  const value = settingNumber(typed, name);
  const { mayBeEmpty, range } = NUMBER_SETTINGS[name];
  if (value !== undefined && (value !== null || mayBeEmpty)) return '';
  return `give ${describeRange(range)}${mayBeEmpty ? ', or nothing' : ''}`;
}

/** Readers of the fields that have rules. Any text is right in the others. */
const TEXT_READERS: Partial<Record<SettingName, (typed: TypedSettings) => Read<unknown>>> = {
  stop: ({ stop }) => readStopTexts(stop),
  logitBias: ({ logitBias }) => readLogitBias(logitBias),
  templateVariables: ({ templateVariables }) => readVariables(templateVariables),
  schema: ({ format, schema }) => readFormat(format, schema),
  tools: ({ tools }) => readTools(tools),
  toolChoice: readToolChoice,
};

/** The choices among the tools that are given. */
export function toolChoices(tools: string): string[] {
  return ['auto', 'none', 'required', ...valueOf(readTools(tools), []).map(toolName)];
}

export function toolName({ function: called }: JsonObject): string {
  return (called as { name: string }).name;
}

function readToolChoice({ tools, toolChoice }: TypedSettings): Read<string> {
  if (toolChoices(tools).includes(toolChoice)) return { value: toolChoice };
  return { problem: `no tool has the name ${JSON.stringify(toolChoice)}: choose another` };
}

/** The first wrong field with its requirement; empty: all are right. */
export function settingsProblem(typed: TypedSettings): string {
  const wrong = SETTING_NAMES.find((name) => settingProblem(typed, name) !== '');
  return wrong === undefined ? '' : `${settingTitle(wrong)}: ${settingProblem(typed, wrong)}`;
}

export function settingTitle(name: SettingName): string {
  if (isNumberName(name)) return NUMBER_SETTINGS[name].title;
  return name in CHOICE_SETTINGS ? CHOICE_SETTINGS[name as ChoiceName].title : TEXT_TITLES[name as TextName];
}

/** The settings from fields that are all right. */
export function chatSettings(typed: TypedSettings): PageChatSettings {
  const number = (name: NumberName): number | null => settingNumber(typed[name], name) ?? null;
  return {
    system: typed.system,
    temperature: number('temperature') ?? 0,
    topP: number('topP') ?? 1,
    topK: number('topK'),
    minP: number('minP'),
    repetitionPenalty: number('repetitionPenalty'),
    presencePenalty: number('presencePenalty'),
    frequencyPenalty: number('frequencyPenalty'),
    logitBias: valueOf(readLogitBias(typed.logitBias), null),
    maxTokens: number('maxTokens'),
    stop: valueOf(readStopTexts(typed.stop), []),
    ignoreEos: typed.ignoreEos === 'yes',
    seed: number('seed'),
    alternatives: number('alternatives'),
    arithmetic: typed.arithmetic === 'exact' ? 'exact' : null,
    thinking: typed.thinking === '' ? null : typed.thinking === 'on',
    reasoningEffort: typed.reasoningEffort === '' ? null : typed.reasoningEffort,
    templateVariables: valueOf(readVariables(typed.templateVariables), null),
    responseFormat: valueOf(readFormat(typed.format, typed.schema), null),
    tools: valueOf(readTools(typed.tools), []),
    toolChoice: typed.toolChoice,
    parallelToolCalls: typed.parallelToolCalls !== 'no',
  };
}

function valueOf<T>(read: Read<T>, otherwise: T): T {
  return 'value' in read ? read.value : otherwise;
}

/** The settings that a browser has kept: what is missing, unknown or of another form has its default. */
export function storedSettings(value: unknown): TypedSettings {
  const stored = typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  const settings = { ...DEFAULT_SETTINGS };
  for (const name of SETTING_NAMES) {
    const text = stored[name];
    if (typeof text !== 'string') continue;
    const choices: readonly string[] | null =
      name in CHOICE_SETTINGS ? CHOICE_SETTINGS[name as ChoiceName].choices : null;
    if (choices === null || choices.includes(text)) settings[name] = text;
  }
  return settings;
}

/** Fields of a request to which settings belong, each by its first word in `param` of main's errors. */
const SETTINGS_OF_FIELDS: Readonly<Record<string, SettingName>> = {
  temperature: 'temperature',
  top_p: 'topP',
  top_k: 'topK',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
  logit_bias: 'logitBias',
  max_tokens: 'maxTokens',
  stop: 'stop',
  ignore_eos: 'ignoreEos',
  seed: 'seed',
  logprobs: 'alternatives',
  top_logprobs: 'alternatives',
  arithmetic: 'arithmetic',
  enable_thinking: 'thinking',
  thinking: 'thinking',
  reasoning_effort: 'reasoningEffort',
  chat_template_kwargs: 'templateVariables',
  response_format: 'schema',
  tools: 'tools',
  tool_choice: 'toolChoice',
  parallel_tool_calls: 'parallelToolCalls',
};

/** The setting that a field of a request comes from, for example that of `tools[0].function`; null: none. */
export function settingOfField(field: string): SettingName | null {
  return SETTINGS_OF_FIELDS[/^\w+/.exec(field)?.[0] ?? ''] ?? null;
}

/** Main's words about a setting that it refused with the last answer; null: none, or the setting has changed since. */
export function settingRefusal(
  typed: TypedSettings,
  answer: { error: string; errorField: string; settings: PageChatSettings } | null,
): { name: SettingName; words: string } | null {
  const name = answer === null ? null : settingOfField(answer.errorField);
  if (answer === null || name === null) return null;
  const key = name === 'schema' ? 'responseFormat' : (name as keyof PageChatSettings);
  const isSame = JSON.stringify(answer.settings[key]) === JSON.stringify(chatSettings(typed)[key]);
  return isSame || name === 'seed' ? { name, words: answer.error } : null;
}
