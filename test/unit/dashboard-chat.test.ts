import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { requestBody } from '../../dashboard/chat-view/chat-request.js';
import {
  failureWords,
  withEnd,
  withFailure,
  withStreamEvent,
  withThrown,
} from '../../dashboard/chat-view/answer-chunks.js';
import { MainRefusal, refusalOf } from '../../dashboard/chat-view/main-refusal.js';
import {
  areTokensWhole,
  percent,
  shadeOf,
  tokensPerSecond,
  usageWords,
  visibleText,
} from '../../dashboard/chat-view/answer-words.js';
import {
  chatSettings,
  DEFAULT_SETTINGS,
  settingNumber,
  settingsProblem,
} from '../../dashboard/chat-view/chat-settings.js';
import {
  ask,
  askAgain,
  changeAnswer,
  EMPTY_PAGE_CONVERSATION,
  questionOf,
  runningAnswer,
  type Answer,
  type PageConversation,
} from '../../dashboard/chat-view/conversation.js';
import { curlCommand, quoted } from '../../dashboard/chat-view/curl-command.js';
import { EventStreamReader, type StreamEvent } from '../../dashboard/chat-view/event-stream.js';
import { popoverPlace } from '../../dashboard/chat-view/popover-place.js';

function answerOf(conversation: PageConversation): Answer {
  const last = conversation.turns.at(-1);
  assert.ok(last?.kind === 'answer');
  return last;
}

const WITH_SEED = { ...chatSettings(DEFAULT_SETTINGS), seed: 5 };
const WAITING = answerOf(ask(EMPTY_PAGE_CONVERSATION, 'Hello', { ...WITH_SEED, seed: 7 }));

function chunk(content: string, more: object = {}): StreamEvent {
  const entry = { token: content, logprob: -0.5, top_logprobs: [{ token: content, logprob: -0.5 }] };
  const choice = { delta: { content }, logprobs: { content: [entry] }, finish_reason: null, ...more };
  return { kind: 'data', text: JSON.stringify({ system_fingerprint: 'odmoe-1', choices: [choice] }) };
}

describe("the reader of an answer's event stream", () => {
  const STREAM =
    ': keep-alive\n\ndata: {"a":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\ndata: é🦊\r\rdata: [DONE]\n\n';
  const EVENTS = [
    { kind: 'comment', text: 'keep-alive' },
    ...['{"a":1}', 'two\nlines', 'é🦊', '[DONE]'].map((text) => ({ kind: 'data', text })),
  ];

  it('finds the same events however the stream is cut', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: STREAM.length }), { maxLength: 12 }), (cuts) => {
        const places = [0, ...cuts.sort((left, right) => left - right), STREAM.length];
        const reader = new EventStreamReader();
        const found = places.slice(1).flatMap((end, index) => reader.take(STREAM.slice(places[index], end)));
        assert.deepEqual(found, EVENTS);
      }),
    );
    const reader = new EventStreamReader();
    assert.deepEqual(
      [...STREAM].flatMap((letter) => reader.take(letter)),
      EVENTS,
    );
  });

  it('refuses an endless line', () => {
    const reader = new EventStreamReader();
    assert.throws(() => reader.take(`data: ${'x'.repeat(5_000_000)}`), /too long/);
  });
});

describe('an answer read event by event', () => {
  it('collects text, tokens, usage and the finish reason', () => {
    const usage = { prompt_tokens: 9, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 5 } };
    const events: StreamEvent[] = [
      { kind: 'comment', text: 'progress {"phase":"prefill","prompt_tokens_done":4,"prompt_tokens":9}' },
      chunk('A '),
      chunk('<b>'),
      chunk('', { finish_reason: 'length' }),
      { kind: 'data', text: JSON.stringify({ choices: [], usage }) },
      { kind: 'data', text: '[DONE]' },
    ];
    const states = events.map((_, index) =>
      events
        .slice(0, index + 1)
        .reduce((answer, event, at) => withStreamEvent(answer, event, 1000 + at * 100), WAITING),
    );
    assert.match(states[0]?.progress ?? '', /4 of 9/);
    const last = states.at(-1);
    assert.ok(last !== undefined);
    assert.deepEqual(
      [last.state, last.text, last.finishReason, last.fingerprint, last.progress],
      ['done', 'A <b>', 'length', 'odmoe-1', ''],
    );
    assert.ok(areTokensWhole(last));
    assert.equal(tokensPerSecond(last), 20);
    const words = usageWords(last).join(', ');
    assert.match(
      words,
      /3 tokens, 20\.0 tokens\/s, prompt 9 tokens, 5 of them reused, cut off at the limit, seed 7, odmoe-1/,
    );
  });

  it('puts the calls of tools together from their parts', () => {
    const part = (call: object): StreamEvent => ({
      kind: 'data',
      text: JSON.stringify({ choices: [{ delta: { tool_calls: [call] } }] }),
    });
    const answer = [
      part({ index: 0, id: 'a', type: 'function', function: { name: 'look', arguments: '' } }),
      part({ index: 0, function: { arguments: '{"at":' } }),
      part({ index: 1, id: 'b', type: 'function', function: { name: 'go', arguments: '{}' } }),
      part({ index: 0, function: { arguments: '1}' } }),
    ].reduce((before, event) => withStreamEvent(before, event, 1), WAITING);
    assert.deepEqual(answer.toolCalls, [
      { id: 'a', name: 'look', arguments: '{"at":1}' },
      { id: 'b', name: 'go', arguments: '{}' },
    ]);
    assert.equal(answer.state, 'streaming');
  });

  it('keeps reasoning apart', () => {
    const thought = { kind: 'data', text: '{"choices":[{"delta":{"reasoning_content":"hm"}}]}' } as const;
    const answer = withStreamEvent(withStreamEvent(WAITING, thought, 1), chunk('Yes'), 2);
    assert.deepEqual([answer.reasoning, answer.text], ['hm', 'Yes']);
  });

  it("fails with main's words, or with words about the status of what answered in its place", async () => {
    const ofMain = new Response('{"error": {"message": "too long", "code": "c"}}', { status: 400 });
    const refusal = await refusalOf(ofMain);
    assert.deepEqual([refusal.message, refusal.code], ['too long', 'c']);
    const page = (status: number): Response => new Response('<html>', { status });
    assert.match((await refusalOf(page(502))).message, /a proxy before it, failed with HTTP status 502\. Try again; /);
    assert.equal((await refusalOf(page(404))).message, 'Main refused with HTTP status 404.');
  });

  it('fails with the message of a mid-stream error, and stays failed', () => {
    const error = { kind: 'data', text: '{"error":{"message":"no worker is left"}}' } as const;
    const failed = withStreamEvent(withStreamEvent(WAITING, error, 1), { kind: 'data', text: '[DONE]' }, 2);
    assert.deepEqual([failed.state, failed.error], ['failed', 'no worker is left']);
    const refusal = new MainRefusal({ message: 'too much', param: 'top_k', code: 'request_invalid' });
    const refused = withThrown(WAITING, refusal);
    assert.deepEqual([refused.error, refused.errorField, refused.errorCode], ['too much', 'top_k', 'request_invalid']);
    assert.equal(withEnd(failed, false), failed);
  });

  it('reports a broken stream; an answer that the user stopped is no failure', () => {
    const half = withStreamEvent(WAITING, chunk('A'), 1);
    assert.match(withEnd(half, false).error, /broke\. Press “Go on”, or ask again\.$/);
    assert.match(withEnd({ ...WAITING, came: half }, false).error, /Go on/);
    const network = new TypeError('network error');
    assert.equal(withThrown(half, network).error, withEnd(half, false).error);
    assert.equal(withThrown(WAITING, network).error, withEnd(WAITING, false).error);
    assert.deepEqual(
      [failureWords(network), failureWords(new Error('no room'))],
      [withEnd(WAITING, false).error, 'no room'],
    );
    assert.throws(
      () => withStreamEvent(WAITING, { kind: 'data', text: '{<' }, 1),
      (thrown) => failureWords(thrown).startsWith('What came is no answer of main: check the address'),
    );
    assert.deepEqual([withEnd(half, true).state, withEnd(half, true).text], ['stopped', 'A']);
  });

  it('shows text that no token carries as plain text', () => {
    const answer = withStreamEvent(WAITING, chunk('A', { logprobs: null }), 1);
    assert.ok(!areTokensWhole(answer));
  });
});

describe('a conversation of the page', () => {
  const said = changeAnswer(ask(EMPTY_PAGE_CONVERSATION, 'One?', WITH_SEED), 2, (answer) => ({
    ...answer,
    state: 'done',
    text: '1',
  }));

  it('sends what the settings do not leave to main', () => {
    const typed = {
      ...DEFAULT_SETTINGS,
      topK: '40',
      minP: '0.05',
      repetitionPenalty: '1.1',
      presencePenalty: '-1',
      frequencyPenalty: '0.5',
      logitBias: '{"7": -100}',
      stop: 'END',
      ignoreEos: 'yes',
      arithmetic: 'exact',
      thinking: 'off',
      reasoningEffort: 'low',
      templateVariables: '{"x": 1}',
      format: 'json',
      tools: '{"name": "look"}',
      toolChoice: 'look',
      parallelToolCalls: 'no',
      alternatives: '0',
    };
    assert.equal(settingsProblem(typed), '');
    const asked = ask(EMPTY_PAGE_CONVERSATION, 'Two?', { ...chatSettings(typed), seed: 5 });
    const { messages, stream, stream_options, return_progress, ...fields } = requestBody(
      asked,
      answerOf(asked),
    ) as Record<string, unknown>;
    assert.deepEqual([messages, stream, return_progress], [[{ role: 'user', content: 'Two?' }], true, true]);
    assert.deepEqual(stream_options, { include_usage: true });
    assert.deepEqual(fields, {
      temperature: 0.7,
      top_p: 1,
      top_k: 40,
      min_p: 0.05,
      repetition_penalty: 1.1,
      presence_penalty: -1,
      frequency_penalty: 0.5,
      logit_bias: { 7: -100 },
      stop: ['END'],
      ignore_eos: true,
      arithmetic: 'exact',
      seed: 5,
      enable_thinking: false,
      reasoning_effort: 'low',
      chat_template_kwargs: { x: 1 },
      response_format: { type: 'json_object' },
      tools: [{ type: 'function', function: { name: 'look' } }],
      tool_choice: { type: 'function', function: { name: 'look' } },
      parallel_tool_calls: false,
      logprobs: true,
      top_logprobs: 0,
    });
  });

  it('leaves dropped turns out, and sends calls with the results of the tools', () => {
    const call = { id: 'call-1', name: 'look', arguments: '{"at":1}' };
    const called = changeAnswer(ask(said, 'Look!', WITH_SEED), 4, (answer) => ({ ...answer, toolCalls: [call] }));
    const results = [{ callId: 'call-1', name: 'look', content: 'a fox' }];
    const asked = ask(called, 'look: a fox', { ...WITH_SEED, droppedTurns: 2 }, results);
    const { messages } = requestBody(asked, answerOf(asked)) as { messages: unknown };
    assert.deepEqual(messages, [
      { role: 'user', content: 'Look!' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call-1', type: 'function', function: { name: 'look', arguments: '{"at":1}' } }],
      },
      { role: 'tool', tool_call_id: 'call-1', name: 'look', content: 'a fox' },
    ]);
    for (const text of ['look: a fox', 'look: an owl']) {
      const question = askAgain(asked, 5, text, WITH_SEED).turns.at(-2);
      assert.ok(question?.kind === 'question');
      assert.deepEqual([question.text, question.toolResults], [text, results]);
    }
  });

  it('sends all earlier messages, with the settings', () => {
    const asked = ask(said, 'Two?', { ...WITH_SEED, system: 'Be brief.' });
    const body = requestBody(asked, answerOf(asked));
    assert.deepEqual(body, {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'One?' },
        { role: 'assistant', content: '1' },
        { role: 'user', content: 'Two?' },
      ],
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
      temperature: 0.7,
      top_p: 1,
      seed: 5,
      logprobs: true,
      top_logprobs: 5,
    });
    const bounded = ask(said, 'Two?', { ...WITH_SEED, maxTokens: 9 });
    assert.equal((requestBody(bounded, answerOf(bounded)) as { max_tokens?: number }).max_tokens, 9);
  });

  it('shows no messages after a question that is edited', () => {
    const again = askAgain(ask(said, 'Two?', WITH_SEED), 1, 'Uno?', { ...WITH_SEED, seed: 9 });
    assert.deepEqual(
      again.turns.map((turn) => (turn.kind === 'question' ? turn.text : turn.state)),
      ['Uno?', 'waiting'],
    );
    assert.equal(questionOf(again, answerOf(again).id)?.text, 'Uno?');
    assert.equal(answerOf(again).settings.seed, 9);
    assert.equal(askAgain(said, 99, 'x', WITH_SEED), said);
  });

  it('has at most one running answer, the last', () => {
    assert.equal(runningAnswer(said), null);
    const running = ask(said, 'Two?', WITH_SEED);
    assert.equal(runningAnswer(running)?.id, 4);
    assert.equal(runningAnswer(changeAnswer(running, 4, (answer) => withFailure(answer, 'no'))), null);
  });
});

describe('the curl command of the page', () => {
  it('gives sh the exact body, whatever the messages hold', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
        const body = { messages: [{ role: 'user', content: text }] };
        const command = curlCommand('http://127.0.0.1:7680/v1/chat/completions', body, true);
        const shown = spawnSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${command}`], {
          encoding: 'utf8',
          env: { ODMOE_API_KEY: 'secret-key' },
        }).stdout.split('\n');
        assert.deepEqual(JSON.parse(shown.at(-2) ?? ''), JSON.parse(JSON.stringify(body)));
        assert.ok(shown.includes('http://127.0.0.1:7680/v1/chat/completions'));
        assert.ok(shown.includes('Authorization: Bearer secret-key'));
      }),
      { numRuns: 6 },
    );
  });

  it('has no key where main needs none', () => {
    assert.doesNotMatch(curlCommand('http://127.0.0.1:7680/', {}, false), /Authorization/);
  });

  it('quotes characters that would end a quote', () => {
    assert.equal(quoted(`it's $(rm) \`x\``), `'it'\\''s $(rm) \`x\`'`);
  });
});

describe('texts and settings of the chat', () => {
  it('shade words that were unlikely', () => {
    const shades = [0, -0.2, -1, -2, -5].map((logprob) => shadeOf({ text: 'x', logprob, alternatives: [] }));
    assert.deepEqual(shades, [0, 1, 2, 3, 4]);
  });

  it('show probabilities and blanks', () => {
    assert.deepEqual([1, 0.97, 0.05, 0.0004, 0].map(percent), ['100 %', '97 %', '5.0 %', '0.04 %', '<0.01 %']);
    assert.equal(visibleText(' a\n'), '␣a⏎');
  });

  it('accept numbers within their ranges only', () => {
    assert.equal(settingNumber('', 'seed'), null);
    assert.equal(settingNumber(' 12 ', 'seed'), 12);
    assert.equal(settingNumber('0.5', 'temperature'), 0.5);
    for (const wrong of ['1.5', '-1', 'x', '1e99']) assert.equal(settingNumber(wrong, 'seed'), undefined);
    assert.equal(settingNumber('1000.5', 'temperature'), undefined);
  });

  it('name the wrong setting, and its allowed values', () => {
    const problem = (change: object): string => settingsProblem({ ...DEFAULT_SETTINGS, ...change });
    assert.equal(problem({}), '');
    assert.equal(problem({ maxTokens: '12', seed: '' }), '');
    assert.equal(problem({ temperature: 'hot' }), 'Temperature: give a number from 0 to 1000');
    assert.equal(problem({ topP: '' }), 'Top p: give a number from 0 to 1');
    assert.equal(problem({ maxTokens: '-5' }), 'Most tokens: give a whole number from 1 to 1000000, or nothing');
    assert.match(problem({ seed: 'abc' }), /^Seed: give a whole number from 0 to \d+, or nothing$/);
  });
});

describe("the place of a token's popover", () => {
  const box = { left: 10, right: 380, top: 100, bottom: 800 };
  const size = { width: 220, height: 150 };
  const place = (left: number, top: number): object =>
    popoverPlace({ left, right: left + 20, top, bottom: top + 20 }, box, size, 780);

  it('is below the token, within the text, and above it where there is no room below', () => {
    assert.deepEqual(place(30, 200), { left: 20, top: 124, bottom: null });
    assert.deepEqual(place(370, 700), { left: 150, top: null, bottom: 104 });
  });

  it('is below the token where there is no room anywhere', () => {
    assert.deepEqual(popoverPlace({ left: 30, right: 50, top: 120, bottom: 140 }, { ...box, bottom: 150 }, size, 200), {
      left: 20,
      top: 44,
      bottom: null,
    });
  });
});
