/** Texts before and after something. Texts are as models write them, with their white space; '' where there is none. */
export interface Around {
  begin: string;
  end: string;
}

/** `{"name": ..., "arguments": {...}}`, or "parameters" in its place. */
export interface ObjectBody {
  kind: 'object';
  argumentsKey: 'arguments' | 'parameters';
  /** True: the calls of an answer are a JSON array. */
  list: boolean;
}

/** A name, then its arguments as JSON. */
export interface NamedBody {
  kind: 'named';
  /** Text before the name. */
  prefix: string;
  /** True: a colon and the call's number follow the name. */
  numbered: boolean;
  /** Text between the name and its arguments. */
  between: string;
  /** Text after the arguments. */
  after: string;
  /** Text before an id, which may follow the name; '': there is no id. */
  idMarker: string;
}

/** A name, then each argument with its key. Texts are written as they are, other values as JSON. */
export interface KeyedBody {
  kind: 'keyed';
  name: Around;
  key: Around;
  value: Around;
  /** Text after the last argument. */
  after: string;
  /** True: values stand on lines of their own. */
  ownLines: boolean;
}

/** `name(key="text", other=1)` or `name{key:"text",other:1}`: values in the form of Python or JSON; a model may have its own quotes. */
export interface LiteralBody {
  kind: 'literal';
  prefix: string;
  arguments: Around;
  /** Text between a key and its value. */
  assign: string;
  quote: string;
  /** True: the calls of an answer are a list in square brackets. */
  list: boolean;
}

export type CallBody = ObjectBody | NamedBody | KeyedBody | LiteralBody;

/** The form in which a model writes calls of tools. */
export interface CallSyntax {
  name: string;
  /** Texts around all calls of an answer. */
  section: Around;
  /** Other texts that models write in place of the first marker. */
  otherBegins: readonly string[];
  /** Texts around each call. */
  call: Around;
  body: CallBody;
  /** Text between two calls. */
  separator: string;
  /** True: no marker begins a call. Only the beginning of an answer can be a call, and only of an offered function. */
  unmarked: boolean;
}

const NONE: Around = { begin: '', end: '' };
const OBJECT: ObjectBody = { kind: 'object', argumentsKey: 'arguments', list: false };

const syntax = (name: string, properties: Partial<CallSyntax> & Pick<CallSyntax, 'body'>): CallSyntax => ({
  name,
  section: NONE,
  otherBegins: [],
  call: NONE,
  separator: '',
  unmarked: false,
  ...properties,
});

/** Hermes, Qwen 2.5 and 3, ERNIE 4.5. A model whose template knows no tools is asked for this form, too. */
export const HERMES = syntax('hermes', {
  call: { begin: '<tool_call>\n', end: '\n</tool_call>' },
  separator: '\n',
  body: OBJECT,
});

/** Mistral up to version 7 of its tokenizer. */
export const MISTRAL = syntax('mistral', {
  section: { begin: '[TOOL_CALLS]', end: '' },
  body: { ...OBJECT, list: true },
});

/** Mistral from version 11 of its tokenizer. */
export const MISTRAL_NAMED = syntax('mistral-named', {
  call: { begin: '[TOOL_CALLS]', end: '' },
  body: { kind: 'named', prefix: '', numbered: false, between: '[ARGS]', after: '', idMarker: '[CALL_ID]' },
});

/** Llama 3.1 and later. */
export const LLAMA = syntax('llama', {
  body: { ...OBJECT, argumentsKey: 'parameters' },
  separator: '; ',
  unmarked: true,
});

/** DeepSeek V3, R1. */
export const DEEPSEEK_V3 = syntax('deepseek-v3', {
  section: { begin: '<｜tool▁calls▁begin｜>', end: '<｜tool▁calls▁end｜>' },
  call: { begin: '<｜tool▁call▁begin｜>', end: '<｜tool▁call▁end｜>' },
  separator: '\n',
  body: {
    kind: 'named',
    prefix: 'function<｜tool▁sep｜>',
    numbered: false,
    between: '\n```json\n',
    after: '\n```',
    idMarker: '',
  },
});

/** DeepSeek V3.1. */
export const DEEPSEEK_V31 = syntax('deepseek-v3.1', {
  section: DEEPSEEK_V3.section,
  call: DEEPSEEK_V3.call,
  body: { kind: 'named', prefix: '', numbered: false, between: '<｜tool▁sep｜>', after: '', idMarker: '' },
});

/** Kimi K2: the name is "functions.NAME:0". */
export const KIMI = syntax('kimi', {
  section: { begin: '<|tool_calls_section_begin|>', end: '<|tool_calls_section_end|>' },
  call: { begin: '<|tool_call_begin|>', end: '<|tool_call_end|>' },
  body: {
    kind: 'named',
    prefix: 'functions.',
    numbered: true,
    between: '<|tool_call_argument_begin|>',
    after: '',
    idMarker: '',
  },
});

/** GLM 4.5. */
export const GLM = syntax('glm', {
  call: { begin: '<tool_call>', end: '\n</tool_call>' },
  separator: '\n',
  body: {
    kind: 'keyed',
    name: NONE,
    key: { begin: '\n<arg_key>', end: '</arg_key>' },
    value: { begin: '\n<arg_value>', end: '</arg_value>' },
    after: '',
    ownLines: false,
  },
});

/** Qwen3-Coder, Qwen3.5. */
export const QWEN_XML = syntax('qwen-xml', {
  call: { begin: '<tool_call>\n', end: '\n</tool_call>' },
  separator: '\n',
  body: {
    kind: 'keyed',
    name: { begin: '<function=', end: '>' },
    key: { begin: '\n<parameter=', end: '>' },
    value: { begin: '', end: '</parameter>' },
    after: '\n</function>',
    ownLines: true,
  },
});

/** MiniMax M2. */
export const MINIMAX = syntax('minimax', {
  section: { begin: '<minimax:tool_call>\n', end: '\n</minimax:tool_call>' },
  call: { begin: '<invoke name="', end: '\n</invoke>' },
  separator: '\n',
  body: {
    kind: 'keyed',
    name: { begin: '', end: '">' },
    key: { begin: '\n<parameter name="', end: '">' },
    value: { begin: '', end: '</parameter>' },
    after: '',
    ownLines: false,
  },
});

/** LFM2. */
export const LFM2 = syntax('lfm2', {
  section: { begin: '<|tool_call_start|>', end: '<|tool_call_end|>' },
  separator: ', ',
  body: {
    kind: 'literal',
    prefix: '',
    arguments: { begin: '(', end: ')' },
    assign: '=',
    quote: '"',
    list: true,
  },
});

/** Gemma 4. */
export const GEMMA = syntax('gemma', {
  call: { begin: '<|tool_call>', end: '<tool_call|>' },
  body: {
    kind: 'literal',
    prefix: 'call:',
    arguments: { begin: '{', end: '}' },
    assign: ':',
    quote: '<|"|>',
    list: false,
  },
});

/** Granite 3, Phi 4 mini. */
export const GRANITE = syntax('granite', {
  section: { begin: '<|tool_call|>', end: '' },
  otherBegins: ['<tool_call>'],
  body: { ...OBJECT, list: true },
});

/** Hunyuan. */
export const HUNYUAN = syntax('hunyuan', {
  section: { begin: '<tool_calls>\n', end: '\n</tool_calls>' },
  call: { begin: '<tool_call>', end: '</tool_call>' },
  separator: '\n',
  body: { kind: 'named', prefix: '', numbered: false, between: '\n```json\n', after: '\n```', idMarker: '' },
});

/** The texts that begin calls in an answer. */
export function callMarkers({ section, otherBegins, call, body, unmarked }: CallSyntax): string[] {
  if (unmarked) return ['<|python_tag|>'];
  const names = body.kind === 'keyed' ? [body.name.begin] : [];
  return [section.begin, ...otherBegins, call.begin, ...names]
    .map((marker) => marker.trim())
    .filter((marker) => marker !== '');
}
