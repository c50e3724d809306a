import { InvalidArgumentError, type Command } from 'commander';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isJson } from '../../shared/base/json/is-json.js';
import { LOGPROBS_RANGE, MAX_TOKENS_RANGE } from '../../shared/wire/generate-validation.js';
import type { GenerateRequest, TemplateArgument } from '../../shared/wire/messages.js';
import type { NumberRange } from '../../shared/wire/sampling-options.js';
import { addSamplingFlags, samplingOfFlags, type SamplingFlags, within } from './sampling-flags.js';

/** The flags from addGenerationFlags, for a command's action. */
export interface GenerationFlags extends SamplingFlags {
  promptTokenIds?: number[];
  maxTokens: number;
  stop: string[];
  raw: boolean;
  templateArg: TemplateArgument[];
  ignoreEos: boolean;
  showSpecialTokens: boolean;
  logprobs: number;
  promptLogprobs: boolean;
  json: boolean;
}

const DEFAULT_MAX_TOKENS = 256;
/** Most tokens of an answer in a conversation, at least 1: an answer needs a token. */
export const ANSWER_LENGTH_RANGE: NumberRange = { ...MAX_TOKENS_RANGE, least: 1 };

/** Adds the flags that `generate`, `prompt` and `demo` share. Their ranges are those of the request's fields. */
export function addGenerationFlags(command: Command): Command {
  command
    .option('--prompt-token-ids <ids>', 'token ids in place of TEXT, as 1,2,3', parseTokenIds)
    .option(
      '--max-tokens <n>',
      'end the answer after this many tokens (0: run the prompt alone)',
      within(MAX_TOKENS_RANGE),
      DEFAULT_MAX_TOKENS,
    );
  return addTemplateFlag(addSamplingFlags(command))
    .option('--stop <text>', 'end the answer before this text (can be given several times)', collect, [])
    .option('--raw', 'take TEXT as it is, without the chat template', false)
    .option('--ignore-eos', 'go on after the end-of-sequence token', false)
    .option('--show-special-tokens', "show special tokens in the answer's text by their names", false)
    .option('--logprobs <n>', 'with --json: log-probabilities of the n most likely tokens', within(LOGPROBS_RANGE), 0)
    .option('--prompt-logprobs', "with --logprobs: of the prompt's tokens, too", false)
    .option('--json', 'print one JSON object and nothing else', false);
}

/** Adds the flag for the most tokens of an answer in a conversation. */
export function addAnswerLengthFlag(command: Command): Command {
  return command.option(
    '--max-tokens <n>',
    'end an answer after this many tokens (default: where the context ends)',
    within(ANSWER_LENGTH_RANGE),
  );
}

export function addTemplateFlag(command: Command): Command {
  return command.option(
    '--template-arg <key=value>',
    'a variable of the chat template, as enable_thinking=false; VALUE is JSON, or else a text (several times)',
    templateArgument,
    [],
  );
}

/** Makes the request from the flags and TEXT. Throws USAGE unless there is exactly one of TEXT and --prompt-token-ids. */
export function generationRequestFrom(flags: GenerationFlags, text: string | undefined): GenerateRequest {
  const hasText = text !== undefined;
  const hasIds = flags.promptTokenIds !== undefined;
  if (hasText === hasIds) {
    const found = hasText ? 'both were given' : 'neither was given';
    throw new OdmoeError('USAGE', `give the prompt as TEXT, by standard input, or as --prompt-token-ids; ${found}`);
  }
  if (text === '') throw new OdmoeError('USAGE', 'TEXT is empty; write a prompt between the quotes');
  if (flags.logprobs > 0 && !flags.json) {
    throw new OdmoeError('USAGE', '--logprobs shows nothing without --json; add --json or leave it out');
  }
  if (flags.promptLogprobs && flags.logprobs === 0) {
    throw new OdmoeError('USAGE', '--prompt-logprobs does not say how many; add --logprobs N and --json');
  }
  return {
    text: text ?? '',
    messages: [],
    promptTokenIds: flags.promptTokenIds ?? [],
    raw: flags.raw,
    maxTokens: flags.maxTokens,
    sampling: samplingOfFlags(flags),
    stop: flags.stop,
    ignoreEos: flags.ignoreEos,
    logprobs: flags.logprobs,
    templateArguments: flags.templateArg,
    promptLogprobs: flags.promptLogprobs,
    showSpecialTokens: flags.showSpecialTokens,
  };
}

/** Parses a flag whose value is a whole number of at least 0. */
export function parseWhole(value: string): number {
  const number = Number(value);
  if (/^\d+$/.test(value) && Number.isSafeInteger(number)) return number;
  throw new InvalidArgumentError('It must be a whole number, 0 or more.');
}

export function parseNumber(value: string): number {
  const number = Number(value);
  if (value.trim() !== '' && Number.isFinite(number)) return number;
  throw new InvalidArgumentError('It must be a number.');
}

function parseTokenIds(value: string): number[] {
  const ids = value.split(',').map((part) => part.trim());
  if (!ids.every((id) => /^\d{1,9}$/.test(id))) {
    throw new InvalidArgumentError('It must be whole numbers with commas between, as 1,2,3.');
  }
  return ids.map(Number);
}

/** Parses KEY=VALUE. A value that is no JSON is a text. */
function templateArgument(given: string, before: TemplateArgument[]): TemplateArgument[] {
  const equals = given.indexOf('=');
  if (equals < 1) throw new InvalidArgumentError('It must be KEY=VALUE, as enable_thinking=false.');
  const [name, value] = [given.slice(0, equals), given.slice(equals + 1)];
  return [...before, { name, value: isJson(value) ? value : JSON.stringify(value) }];
}

function collect(value: string, before: string[]): string[] {
  return [...before, value];
}
