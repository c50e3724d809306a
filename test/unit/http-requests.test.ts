import assert from 'node:assert/strict';
import fc from 'fast-check';
import { allowedMethods } from '../../http-api/requests/allowed-methods.js';
import { BODY_LIMITS } from '../../http-api/requests/body-limits.js';
import { BodyScan } from '../../http-api/requests/body-scan.js';
import { describePlace, findJsonFault } from '../../http-api/requests/json-fault.js';
import { parseBody, requirePlain } from '../../http-api/requests/read-body.js';
import { RequestRecord } from '../../http-api/requests/request-record.js';
import { requestIdOf } from '../../http-api/requests/request-id.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { isJson } from '../../shared/base/json/is-json.js';

const parse = (text: string): unknown => parseBody(Buffer.concat(new BodyScan(BODY_LIMITS).take(Buffer.from(text))));

describe('the log record of an HTTP request', () => {
  const accountOf = (...codes: ErrorCode[]): RequestRecord => {
    const account = new RequestRecord({ headers: {} }, 0);
    for (const code of codes) account.failed(code);
    return account;
  };

  it('ends with the first failure, since later ones follow from it', () => {
    assert.equal(accountOf('DEVICE_LOST', 'CANCELLED').codeAtEnd(true), 'DEVICE_LOST');
    assert.equal(accountOf('CANCELLED', 'DEVICE_LOST').codeAtEnd(false), 'CANCELLED');
  });

  it('ends as success where the whole answer was sent, and as cancelled where its client left before', () => {
    assert.equal(accountOf().codeAtEnd(true), 'ok');
    assert.equal(accountOf().codeAtEnd(false), 'CANCELLED');
  });
});

describe('the bodies of HTTP requests', () => {
  it('are JSON, whatever their declared type is; an empty body is no JSON', () => {
    assert.deepEqual(parse('{"a": [1, "ä"]}'), { a: [1, 'ä'] });
    assert.equal(parse(' \r\n'), undefined);
    assert.equal(parse(''), undefined);
  });

  it('are refused when they are compressed', () => {
    assert.throws(() => requirePlain('gzip'), { code: 'REQUEST_INVALID', message: /compressed/ });
    requirePlain('Identity');
    requirePlain(undefined);
  });

  it('may begin with a byte-order mark', () => {
    assert.deepEqual(parseBody(Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d])), {});
  });

  for (const [text, place] of [
    ['{"a": 1,}', 'line 1, column 9'],
    ['{\n  "a": nope\n}', 'line 2, column 8'],
    ['{"a" 1}', 'line 1, column 6'],
    ['[1 2]', 'line 1, column 4'],
    ['{"a": "\u0001"}', 'line 1, column 8'],
    ["{'a': 1}", 'line 1, column 2'],
    ['[01]', 'line 1, column 2'],
    ['{} {}', 'line 1, column 4'],
  ] as const) {
    it(`that are wrong say where: ${JSON.stringify(text)}`, () => {
      assert.throws(() => parse(text), { code: 'REQUEST_INVALID', message: new RegExp(`not JSON.*${place}$`) });
    });
  }

  for (const text of ['{', '{"a": ', '"abc', '[1,', '{"a": "\\', '[', '-']) {
    it(`that end too early say so: ${text}`, () => {
      assert.throws(() => parse(text), { code: 'REQUEST_INVALID' });
      assert.ok((findJsonFault(text) ?? -1) >= 0);
    });
  }

  it('are valid JSON exactly where the parser accepts them', () => {
    const characters = fc.constantFrom(...'{}[]",:\\ \n01.-+eEtrue falsn/u00a\u0007ä'.split(''));
    const texts = fc.oneof(
      fc.string({ unit: characters, maxLength: 12 }),
      fc.json(),
      fc.tuple(fc.json(), fc.nat(), characters).map(([json, at, character]) => {
        const place = at % (json.length + 1);
        return json.slice(0, place) + character + json.slice(place + 1);
      }),
    );
    fc.assert(
      fc.property(texts, (text) => {
        const at = findJsonFault(text);
        assert.equal(at === null, isJson(text));
        // The text before a fault can be continued to valid JSON, so it has no fault itself.
        if (at !== null) assert.ok(at >= 0 && at <= text.length);
      }),
      { numRuns: 3000 },
    );
  });

  it('of megabytes overflow no stack', () => {
    const long = `{"a": "${'x\\n'.repeat(1_000_000)}"`;
    assert.throws(() => parse(long), { code: 'REQUEST_INVALID', message: /too early/ });
    assert.throws(() => parse('['.repeat(1_000_000)), { code: 'REQUEST_INVALID', message: /within one another/ });
    assert.equal(findJsonFault('['.repeat(1_000_000)), 1_000_000);
  });

  it('may be 128 lists deep, and brackets in strings do not count', () => {
    const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
    assert.ok(Array.isArray(parse(nested(128))));
    assert.throws(() => parse(nested(129)), { code: 'REQUEST_INVALID' });
    assert.deepEqual(parse(`["${'['.repeat(500)}\\"${'{'.repeat(500)}"]`), [`${'['.repeat(500)}"${'{'.repeat(500)}`]);
    assert.throws(() => parse(`["\\\\",${nested(128)}]`), { code: 'REQUEST_INVALID' });
  });

  it('cannot change what objects inherit', () => {
    for (const key of ['__proto__', '\\u005f_proto__', '__pr\\u006fto__', '_\\u005Fproto\\u005f_']) {
      assert.throws(() => parse(`{"a": [{"${key}": {"b": 1}}]}`), { code: 'REQUEST_INVALID', message: /__proto__/ });
    }
    assert.deepEqual(parse('{"content": "a key __proto__ is \\"__proto__\\": bad"}'), {
      content: 'a key __proto__ is "__proto__": bad',
    });
  });

  it('are refused where they are not UTF-8', () => {
    assert.throws(() => parseBody(Buffer.from([0x22, 0xff, 0x22])), { code: 'REQUEST_INVALID', message: /UTF-8/ });
    assert.throws(() => parseBody(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])), { code: 'REQUEST_INVALID' });
  });

  it('have error positions that count from one', () => {
    assert.equal(describePlace('ab\ncd', 0), 'line 1, column 1');
    assert.equal(describePlace('ab\ncd', 3), 'line 2, column 1');
    assert.equal(describePlace('ab\ncd', 5), 'line 2, column 3');
  });
});

describe('the ids of HTTP requests', () => {
  const make = (): string => 'made';
  for (const id of ['a', 'req_1.2-3', 'x'.repeat(128)]) {
    it(`are the client's where they are sane: ${id.slice(0, 20)}`, () => assert.equal(requestIdOf(id, make), id));
  }
  for (const id of [undefined, '', 'x'.repeat(129), 'a b', 'a\r\nset-cookie: b', 'ä', ['a', 'b']]) {
    it(`are made where not: ${JSON.stringify(id)?.slice(0, 20)}`, () => assert.equal(requestIdOf(id, make), 'made'));
  }
});

describe('the methods of an HTTP path:', () => {
  const routes = [
    { method: 'GET', path: '/v1/models' },
    { method: 'GET', path: '/v1/models/:model' },
    { method: 'DELETE', path: '/v1/models/:model' },
    { method: 'POST', path: '/v1/chat/completions' },
    { method: 'GET', path: '/files/*' },
  ];
  for (const [path, expected] of [
    ['/v1/models', ['GET']],
    ['/v1/models/', ['GET']],
    ['/v1/models/a.b', ['DELETE', 'GET']],
    ['/v1/models/a/b', []],
    ['/v1/chat/completions', ['POST']],
    ['/v1/chatXcompletions', []],
    ['/files/a/b', ['GET']],
    ['/', []],
  ] as const) {
    it(`the path ${path} allows the methods ${expected.join(', ') || 'none'}`, () =>
      assert.deepEqual(allowedMethods(routes, path), expected));
  }
});
