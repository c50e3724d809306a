import { isInRange, LOGIT_BIAS_LIMIT, LOGIT_BIAS_RANGE } from '../../shared/wire/sampling-options.js';

export type JsonObject = Record<string, unknown>;

/** What a text says, or what is wrong with it. */
export type Read<T> = { value: T } | { problem: string };

/** Limits of main. */
const MOST_STOP_TEXTS = 64;
const MOST_STOP_CHARACTERS = 1024;
const MOST_TOOLS = 128;
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,64}$/;

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readJson(text: string): Read<unknown> {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (thrown) {
    return { problem: `this is no JSON: ${jsonRemedy(text, String(thrown))}` };
  }
}

/** Browsers tell the place of an error each in its own way, or not at all. */
function jsonRemedy(text: string, engineWords: string): string {
  const position = /\bposition (\d+)/.exec(engineWords)?.[1];
  if (position !== undefined) return `check it near character ${Number(position) + 1}`;
  const [, line, column] = /\bline (\d+) column (\d+)/.exec(engineWords) ?? [];
  if (line !== undefined && column !== undefined) return `check it near character ${column} of line ${line}`;
  return text.trim() === '' ? 'it is empty' : 'check its quotes, commas and brackets';
}

/** Empty: null. */
function readObject(text: string, example: string): Read<JsonObject | null> {
  if (text.trim() === '') return { value: null };
  const read = readJson(text);
  if ('problem' in read) return read;
  return isObject(read.value) ? { value: read.value } : { problem: `give a JSON object, for example ${example}` };
}

/** Texts that end the answer, one a line; a line in double quotes is read as JSON, so that it can hold a line's end as \n. */
export function readStopTexts(text: string): Read<string[]> {
  const texts: string[] = [];
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const read: Read<unknown> = line.startsWith('"') ? readJson(line) : { value: line };
    if ('problem' in read) return { problem: `${line}: a text in quotes must be a JSON text` };
    if (typeof read.value !== 'string' || read.value === '') return { problem: `${line}: this is no text` };
    if (read.value.length > MOST_STOP_CHARACTERS) {
      return { problem: `a text has ${read.value.length} characters; main takes ${MOST_STOP_CHARACTERS}` };
    }
    texts.push(read.value);
  }
  if (texts.length > MOST_STOP_TEXTS)
    return { problem: `these are ${texts.length} texts; main takes ${MOST_STOP_TEXTS}` };
  return { value: texts };
}

/** An object of token ids and what is added to their logits. */
export function readLogitBias(text: string): Read<JsonObject | null> {
  const read = readObject(text, '{"1734": -100}');
  if ('problem' in read || read.value === null) return read;
  const entries = Object.entries(read.value);
  if (entries.length > LOGIT_BIAS_LIMIT) {
    return { problem: `these are ${entries.length} tokens; main takes ${LOGIT_BIAS_LIMIT}` };
  }
  const wrong = entries.find(
    ([id, bias]) => !/^\d{1,9}$/.test(id) || typeof bias !== 'number' || !isInRange(bias, LOGIT_BIAS_RANGE),
  );
  if (wrong === undefined) return read;
  const { least, most } = LOGIT_BIAS_RANGE;
  return {
    problem: `"${wrong[0]}": give a token's id (POST /tokenize tells it) and a number from ${least} to ${most}`,
  };
}

export function readVariables(text: string): Read<JsonObject | null> {
  return readObject(text, '{"enable_thinking": false}');
}

/**
 * The `response_format` of a request. `format`: empty for any text, "json" for any object, "schema" for one that follows the schema. A schema
 * may also stand in the form of the API.
 */
export function readFormat(format: string, schema: string): Read<JsonObject | null> {
  if (format === '') return { value: null };
  if (format === 'json') return { value: { type: 'json_object' } };
  const read = readObject(schema, '{"type": "object", "properties": {"name": {"type": "string"}}}');
  if ('problem' in read) return read;
  if (read.value === null) return { problem: 'give a schema, or choose another kind of answer' };
  if (read.value.type === 'json_schema') return { value: read.value };
  return { value: { type: 'json_schema', json_schema: { name: 'answer', schema: read.value } } };
}

/** A list of tools in the form of the API, or of their functions alone. */
export function readTools(text: string): Read<JsonObject[]> {
  if (text.trim() === '') return { value: [] };
  const read = readJson(text);
  if ('problem' in read) return read;
  const list: unknown[] = Array.isArray(read.value) ? read.value : [read.value];
  if (list.length > MOST_TOOLS) return { problem: `these are ${list.length} tools; main takes ${MOST_TOOLS}` };
  const tools: JsonObject[] = [];
  for (const [index, given] of list.entries()) {
    const tool = toolOf(given);
    if (tool === null) {
      return {
        problem: `tool ${index + 1} has no name: give {"name": "...", "description": "...", "parameters": {a JSON schema}}`,
      };
    }
    if (!TOOL_NAME.test(tool.name)) {
      return {
        problem: `tool ${index + 1}: its name must be 1 to 64 letters, digits, points, underscores and hyphens`,
      };
    }
    tools.push({ type: 'function', function: tool });
  }
  return { value: tools };
}

function toolOf(given: unknown): (JsonObject & { name: string }) | null {
  const called = isObject(given) && given.type === 'function' && isObject(given.function) ? given.function : given;
  if (!isObject(called) || typeof called.name !== 'string') return null;
  return { ...called, name: called.name };
}
