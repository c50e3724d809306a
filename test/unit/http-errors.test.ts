import assert from 'node:assert/strict';
import { clientCode, errorHeaders, openAiErrorBody } from '../../http-api/errors/error-answer.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ERROR_KINDS, type ErrorCode } from '../../shared/base/errors/registry.js';

const CODES = Object.keys(ERROR_KINDS) as ErrorCode[];

describe('the errors that HTTP clients see:', () => {
  for (const code of CODES) {
    it(`${code} has a status of 400 or more, a type, and says at most one thing about asking again`, () => {
      const error = new OdmoeError(code, 'what');
      const headers = errorHeaders(error);
      assert.ok(error.kind.httpStatus >= 400 && error.kind.httpStatus < 600);
      assert.ok(!('retry-after' in headers && 'x-should-retry' in headers));
      const { error: body } = openAiErrorBody(error) as { error: Record<string, unknown> };
      assert.deepEqual(Object.keys(body), ['message', 'type', 'param', 'code']);
      assert.match(String(body['type']), /_error$/);
      assert.equal(body['code'], clientCode(code));
      assert.match(clientCode(code), /^[a-z_]+$/);
    });
  }

  it('a retry is suggested only where waiting, or a part that comes back, can help', () => {
    assert.equal(errorHeaders(new OdmoeError('UNAUTHORIZED', ''))['www-authenticate'], 'Bearer');
    const worthwhile = CODES.filter((code) => !('x-should-retry' in errorHeaders(new OdmoeError(code, ''))));
    assert.deepEqual(worthwhile.sort(), [
      'DEVICE_LOST',
      'INTERNAL',
      'NO_MAIN',
      'NO_WORKERS',
      'QUEUE_FULL',
      'REQUEST_SLOW',
      'SHADOW_LOST',
      'STALE_EPOCH',
      'STORAGE_FAILED',
      'TIMEOUT',
      'WORKER_LOST',
    ]);
  });

  for (const [code, status, type, shown] of [
    ['PROMPT_TOO_LONG', 400, 'invalid_request_error', 'context_length_exceeded'],
    ['MODEL_UNKNOWN', 404, 'not_found_error', 'model_not_found'],
    ['UNAUTHORIZED', 401, 'authentication_error', 'invalid_api_key'],
    ['QUEUE_FULL', 429, 'rate_limit_error', 'queue_full'],
    ['NO_WORKERS', 503, 'server_error', 'no_workers'],
    ['REQUEST_INVALID', 400, 'invalid_request_error', 'request_invalid'],
  ] as const) {
    it(`HTTP clients see ${code} as status ${status} ${shown}`, () => {
      const error = new OdmoeError(code, 'what', { field: 'tools[0]' });
      assert.equal(error.kind.httpStatus, status);
      assert.deepEqual(openAiErrorBody(error), { error: { message: 'what', type, param: 'tools[0]', code: shown } });
    });
  }
});
