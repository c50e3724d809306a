import assert from 'node:assert/strict';
import { CommanderError } from 'commander';
import { addGenerationFlags, generationRequestFrom, type GenerationFlags } from '../../cli/client/generation-flags.js';
import { createProgram } from '../../cli/client/run-command-line.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';

const GREEDY = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: [],
  outputFormat: null,
};

function parse(...args: string[]): GenerateRequest {
  const program = createProgram('odmoe').configureOutput({ writeErr: () => undefined });
  let request: GenerateRequest | null = null;
  const command = addGenerationFlags(program.command('ask').argument('[text]'));
  command.action((text: string | undefined, flags: GenerationFlags) => {
    request = generationRequestFrom(flags, text);
  });
  program.parse(['ask', ...args], { from: 'user' });
  assert.ok(request !== null);
  return request;
}

describe('the flags of generate, prompt and demo', () => {
  it('give a greedy request by default', () => {
    assert.deepEqual(parse('hello'), {
      text: 'hello',
      messages: [],
      promptTokenIds: [],
      raw: false,
      maxTokens: 256,
      sampling: GREEDY,
      stop: [],
      ignoreEos: false,
      logprobs: 0,
      templateArguments: [],
      promptLogprobs: false,
      showSpecialTokens: false,
    });
  });

  it('are all copied into the request', () => {
    const sampling = '--temperature 0.5 --top-k 40 --top-p 0.9 --min-p 0.05 --repetition-penalty 1.1 --seed 9';
    const more = '--presence-penalty -0.5 --frequency-penalty 1.5 --logit-bias 5=-100 --logit-bias 0=2.5';
    const shown = '--response-format json_object --prompt-logprobs --show-special-tokens';
    const rest = '--prompt-token-ids 1,2,3 --max-tokens 7 --stop a --stop b --raw --ignore-eos --json --logprobs 3';
    assert.deepEqual(parse(...[sampling, more, shown, rest].join(' ').split(' ')), {
      text: '',
      messages: [],
      promptTokenIds: [1, 2, 3],
      raw: true,
      maxTokens: 7,
      sampling: {
        temperature: 0.5,
        topK: 40,
        topP: 0.9,
        minP: 0.05,
        repetitionPenalty: 1.1,
        seed: 9,
        presencePenalty: -0.5,
        frequencyPenalty: 1.5,
        logitBias: [
          { tokenId: 5, bias: -100 },
          { tokenId: 0, bias: 2.5 },
        ],
        outputFormat: jsonFormat('{"type":"object"}'),
      },
      stop: ['a', 'b'],
      ignoreEos: true,
      logprobs: 3,
      templateArguments: [],
      promptLogprobs: true,
      showSpecialTokens: true,
    });
  });

  it('take variables of the chat template as JSON, or else as text', () => {
    const given = ['enable_thinking=false', 'reasoning_effort=high', 'tools=[{"name":"f"}]', 'note=a=b', 'empty='];
    const { templateArguments } = parse('hello', ...given.flatMap((argument) => ['--template-arg', argument]));
    assert.deepEqual(templateArguments, [
      { name: 'enable_thinking', value: 'false' },
      { name: 'reasoning_effort', value: '"high"' },
      { name: 'tools', value: '[{"name":"f"}]' },
      { name: 'note', value: '"a=b"' },
      { name: 'empty', value: '""' },
    ]);
    assert.throws(() => parse('hello', '--template-arg', 'enable_thinking'), { message: /KEY=VALUE/ });
  });

  it('take the answer format as a name, a JSON schema, or the OpenAI API’s response_format', () => {
    const formatOf = (given: string) => parse('hello', '--response-format', given).sampling?.outputFormat;
    const schema = '{"type":"object","properties":{"a":{"type":"integer"}}}';
    assert.equal(formatOf('text'), null);
    assert.equal(formatOf('{"type":"text"}'), null);
    assert.deepEqual(formatOf('json_object'), formatOf('{"type":"json_object"}'));
    assert.deepEqual(formatOf(schema), jsonFormat(schema));
    assert.deepEqual(
      formatOf(`{"type":"json_schema","json_schema":{"name":"a","schema":${schema}}}`),
      jsonFormat(schema),
    );
    const exact = '{"const":{"id":12345678901234567890,"10":1,"2":1.0}}';
    assert.deepEqual(formatOf(exact), jsonFormat(exact));
    assert.deepEqual(formatOf(`{"json_schema":{"schema":${exact}},"type":"json_schema"}`), jsonFormat(exact));
    assert.deepEqual(formatOf('{}'), jsonFormat('{}'));
    for (const wrong of ['json', '[]', '"text"', '{"type":"json_schema"}', '{"type":"text","more":1}']) {
      assert.throws(() => formatOf(wrong), { name: 'CommanderError' }, wrong);
    }
  });

  it('take a seed of 0 as a seed, and both ends of every range', () => {
    assert.equal(parse('hello', '--seed', '0').sampling?.seed, 0);
    assert.equal(parse('hello', '--seed', '9007199254740991').sampling?.seed, Number.MAX_SAFE_INTEGER);
    assert.equal(parse('hello', '--max-tokens', '4294967295').maxTokens, 2 ** 32 - 1);
    assert.equal(parse('hello', '--repetition-penalty', '0').sampling?.repetitionPenalty, 0);
    assert.equal(parse('hello', '--repetition-penalty', '0.001').sampling?.repetitionPenalty, 0.001);
  });

  it('list the values that they take in errors', () => {
    const ranges: [string, string, RegExp][] = [
      ['--max-tokens', '-1', /whole number from 0 to 4294967295/],
      ['--seed', '9007199254740992', /whole number from 0 to 9007199254740991/],
      ['--repetition-penalty', '1e-300', /0 \(off\) or a number from 0\.001 to 1000/],
      ['--temperature', '-1', /number from 0 to 1000/],
      ['--top-p', '1.5', /number from 0 to 1\b/],
      ['--logprobs', '1025', /whole number from 0 to 1024/],
    ];
    for (const [flag, value, message] of ranges) {
      assert.throws(() => parse('hello', flag, value), { name: 'CommanderError', message }, `${flag} ${value}`);
    }
  });

  const wrongUsage: string[][] = [
    [],
    ['hello', '--prompt-token-ids', '1'],
    [''],
    ['hello', '--logprobs', '2'],
    ['hello', '--prompt-logprobs'],
  ];
  for (const args of wrongUsage) {
    it(`the flags of a generation refuse the arguments [${args.join(' ')}]`, () => {
      assert.throws(
        () => parse(...args),
        (error) => error instanceof OdmoeError && error.code === 'USAGE',
      );
    });
  }

  const wrongValues = [
    ['--prompt-token-ids', '1,x'],
    ['--prompt-token-ids', ''],
    ['--prompt-token-ids', '-1'],
    ['--max-tokens', '4294967296'],
    ['--max-tokens', '1.5'],
    ['--max-tokens', '0x10'],
    ['--repetition-penalty', '1e-300'],
    ['--seed', '-1'],
    ['--max-tokens', '-3'],
    ['--temperature', 'warm'],
    ['--temperature', ''],
    ['--seed', '99999999999999999999'],
    ['--presence-penalty', '101'],
    ['--frequency-penalty', 'much'],
    ['--logit-bias', '5'],
    ['--logit-bias', '5='],
    ['--logit-bias', '-5=1'],
    ['--logit-bias', '5=101'],
    ['--no-such-flag', '1'],
  ];
  for (const [flag = '', value = ''] of wrongValues) {
    it(`the flags of a generation refuse ${flag} with the value "${value}"`, () => {
      assert.throws(() => parse('hello', flag, value), CommanderError);
    });
  }
});
