import { InvalidArgumentError, type Command } from 'commander';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { jsonProperties } from '../../shared/base/json/exact-json.js';
import type { LogitBias, OutputFormat, SamplingMessage } from '../../shared/wire/messages.js';
import { jsonFormat, outputFormatOf } from '../../shared/language/response-format.js';
import {
  ANSWER_PENALTY_RANGE,
  describeRange,
  isInRange,
  LOGIT_BIAS_RANGE,
  type NumberRange,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
} from '../../shared/wire/sampling-options.js';

/** The flags from addSamplingFlags, for a command's action. */
export interface SamplingFlags {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  presencePenalty: number;
  frequencyPenalty: number;
  logitBias: LogitBias[];
  responseFormat: OutputFormat | 'text';
  seed?: number;
}

/** Adds the flags for the choice of tokens. Their ranges are those of the request's fields. */
export function addSamplingFlags(command: Command): Command {
  const penalty = within(ANSWER_PENALTY_RANGE);
  return command
    .option('--temperature <t>', '0 takes the most likely token, higher is more varied', within(TEMPERATURE_RANGE), 0)
    .option('--top-k <k>', 'choose among the k most likely tokens (0: all)', within(TOP_K_RANGE), 0)
    .option('--top-p <p>', 'choose among the fewest tokens that hold probability p', within(PROBABILITY_RANGE), 1)
    .option('--min-p <p>', 'leave out tokens less likely than p times the most likely', within(PROBABILITY_RANGE), 0)
    .option(
      '--repetition-penalty <r>',
      'above 1: make tokens that came before less likely',
      within(REPETITION_PENALTY_RANGE),
      1,
    )
    .option('--presence-penalty <p>', 'taken off the scores of tokens that the answer has', penalty, 0)
    .option('--frequency-penalty <p>', 'the same, for each time that it has them', penalty, 0)
    .option(
      '--logit-bias <id=bias>',
      "added to a token's score; -100: never chosen (can be given several times)",
      logitBias,
      [],
    )
    .option(
      '--response-format <format>',
      'text, json_object, a JSON schema, or response_format of the OpenAI API as JSON',
      responseFormat,
      'text',
    )
    .option('--seed <n>', 'random numbers that can be repeated (default: chosen anew)', within(SEED_RANGE));
}

export function samplingOfFlags({ seed, responseFormat, ...flags }: SamplingFlags): SamplingMessage {
  const { temperature, topK, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty } = flags;
  return {
    temperature,
    topK,
    topP,
    minP,
    repetitionPenalty,
    presencePenalty,
    frequencyPenalty,
    logitBias: flags.logitBias,
    outputFormat: responseFormat === 'text' ? null : responseFormat,
    ...(seed === undefined ? {} : { seed }),
  };
}

/** Makes the parser of a flag whose value becomes a field of the request. */
export function within(range: NumberRange): (value: string) => number {
  return (value) => {
    const number = value.trim() === '' ? NaN : Number(value);
    // Above 2^53, a whole number would change without notice.
    if (isInRange(number, range) && (!range.whole || /^\d+$/.test(value))) return number;
    throw new InvalidArgumentError(`It must be ${describeRange(range)}.`);
  };
}

/** Parses ID=BIAS. */
function logitBias(given: string, before: LogitBias[]): LogitBias[] {
  const [, tokenId = '', bias = ''] = /^(\d{1,9})=(.*)$/.exec(given) ?? [];
  if (tokenId === '') throw new InvalidArgumentError('It must be a token id and a number, as 17=-100.');
  return [...before, { tokenId: Number(tokenId), bias: within(LOGIT_BIAS_RANGE)(bias) }];
}

/** Names of formats. The `type` of a schema never has one of these values. */
const FORMATS: ReadonlySet<unknown> = new Set(['text', 'json_object', 'json_schema']);

function responseFormat(given: string): OutputFormat | 'text' {
  if (given === 'text') return given;
  const described = given === 'json_object' ? '{"type":"json_object"}' : given;
  const properties = jsonProperties(described);
  if (properties === null) {
    throw new InvalidArgumentError('It must be text, json_object, or JSON as {"type":"object","properties":{}}.');
  }
  if (!FORMATS.has(properties.find(({ key }) => key === 'type')?.value)) return jsonFormat(given);
  try {
    return outputFormatOf(described) ?? 'text';
  } catch (thrown) {
    throw new InvalidArgumentError(toOdmoeError(thrown).message);
  }
}
