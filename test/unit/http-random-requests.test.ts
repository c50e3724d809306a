import assert from 'node:assert/strict';
import fc from 'fast-check';
import { anthropicChat, readMessagesBody } from '../../http-api/anthropic/messages-request.js';
import { ollamaChat, promptChat } from '../../http-api/ollama/conversation.js';
import { answerOptions } from '../../http-api/ollama/options.js';
import { readChatBody, readGenerateBody } from '../../http-api/ollama/request-fields.js';
import { readDetokenizeBody, readTokenizeBody } from '../../http-api/tokens/token-routes.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A value with names and values that clients send, also in places where they are not valid. */
function drawn(names: readonly string[], values: readonly unknown[]): fc.Arbitrary<unknown> {
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof({ maxDepth: 5 }, tie('leaf'), tie('list'), tie('object'), tie('object')),
    leaf: fc.oneof(fc.constantFrom(...values), fc.string(), fc.double(), fc.boolean(), fc.constant(null)),
    list: fc.array(tie('tree'), { maxLength: 3 }),
    object: fc.dictionary(fc.constantFrom(...names), tie('tree'), { maxKeys: 5 }),
  }));
  return tree;
}

/** A refusal must name a field, and must never be an internal error. */
function takenOrRefused(act: () => unknown): void {
  try {
    act();
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError, `not an error of ours: ${String(thrown)}`);
    assert.equal(thrown.code, 'REQUEST_INVALID');
    assert.ok(thrown.message.length < 1000, 'a message repeats little of a request');
  }
}

describe('random requests are accepted, or refused by a field name:', () => {
  const runs = { numRuns: 2000 };

  it("requests of Anthropic's clients", () => {
    const names = [
      'role',
      'content',
      'type',
      'text',
      'id',
      'name',
      'input',
      'tool_use_id',
      'is_error',
      'thinking',
      'signature',
      'source',
      'data',
      'title',
      'tool_name',
      'edits',
    ];
    const values = [
      'user',
      'assistant',
      'system',
      'text',
      'tool_use',
      'tool_result',
      'thinking',
      'image',
      'document',
      'search_result',
      'compaction',
      'tool_reference',
      'redacted_thinking',
      'any',
      'tool',
      'x',
    ];
    const member = drawn(names, values);
    const places = [
      'messages',
      'system',
      'tools',
      'tool_choice',
      'thinking',
      'output_config',
      'mcp_servers',
      'container',
      'context_management',
      'stop_sequences',
      'top_k',
    ];
    const changes = fc.dictionary(fc.constantFrom(...places), fc.oneof(member, fc.array(member)), { maxKeys: 3 });
    const base = { model: 'm', max_tokens: 1, messages: [{ role: 'user', content: 'a' }] };
    fc.assert(
      fc.property(changes, (changed) =>
        takenOrRefused(() => anthropicChat(readMessagesBody({ ...base, ...changed }), null)),
      ),
      runs,
    );
  });

  it("requests of Ollama's clients", () => {
    const names = [
      'role',
      'content',
      'tool_calls',
      'function',
      'name',
      'arguments',
      'tool_name',
      'images',
      'think',
      'type',
    ];
    const values = ['user', 'assistant', 'tool', 'function', 'json', 'low', ''];
    const member = drawn(names, values);
    const places = [
      'messages',
      'tools',
      'format',
      'think',
      'options',
      'stream',
      'keep_alive',
      'prompt',
      'system',
      'raw',
    ];
    const changes = fc.dictionary(fc.constantFrom(...places), fc.oneof(member, fc.array(member)), { maxKeys: 3 });
    fc.assert(
      fc.property(changes, (changed) => {
        takenOrRefused(() => ollamaChat(readChatBody({ model: 'm', ...changed }), 'reasoning_effort'));
        takenOrRefused(() => promptChat(readGenerateBody({ model: 'm', ...changed }), null));
      }),
      runs,
    );
    const option = fc.oneof(fc.double(), fc.integer(), fc.string(), fc.array(fc.string()), fc.boolean());
    const options = [
      'temperature',
      'top_k',
      'num_predict',
      'num_ctx',
      'stop',
      'seed',
      'repeat_last_n',
      'repeat_penalty',
    ];
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...options), option), (given) =>
        takenOrRefused(() => answerOptions(given)),
      ),
      runs,
    );
  });

  it('requests for tokens and texts', () => {
    const changes = fc.dictionary(fc.constantFrom('content', 'tokens', 'add_special', 'with_pieces'), fc.jsonValue());
    fc.assert(
      fc.property(changes, (changed) => {
        takenOrRefused(() => readTokenizeBody(changed));
        takenOrRefused(() => readDetokenizeBody(changed));
      }),
    );
  });
});
