import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { z } from 'zod';
import { COUNT_TOKENS_TABLE, MESSAGES_TABLE } from '../../http-api/anthropic/messages-request.js';
import type { FieldTable } from '../../http-api/fields/field-table.js';
import { OPTIONS_TABLE } from '../../http-api/ollama/options.js';
import { CHAT_TABLE, GENERATE_TABLE, SHOW_TABLE } from '../../http-api/ollama/request-fields.js';
import { CHAT_FIELDS } from '../../http-api/openai/chat-fields.js';
import { COMPLETION_FIELDS } from '../../http-api/openai/completion-fields.js';
import { RESPONSE_FIELDS } from '../../http-api/openai/response-fields.js';
import { DETOKENIZE_TABLE, TOKENIZE_TABLE } from '../../http-api/tokens/token-routes.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

/** Headings of docs/http.md, each with the code's field table that the table below it must equal. */
const TABLES: Readonly<Record<string, FieldTable<z.ZodRawShape>>> = {
  '`POST /v1/chat/completions`': CHAT_FIELDS,
  '`POST /v1/completions`': COMPLETION_FIELDS,
  '`POST /v1/responses`': RESPONSE_FIELDS,
  '`POST /v1/messages`': MESSAGES_TABLE,
  '`POST /v1/messages/count_tokens`': COUNT_TOKENS_TABLE,
  '`POST /api/chat`': CHAT_TABLE,
  '`POST /api/generate`': GENERATE_TABLE,
  '`options` of both': OPTIONS_TABLE,
  '`POST /api/show`': SHOW_TABLE,
  '`POST /tokenize`': TOKENIZE_TABLE,
  '`POST /detokenize`': DETOKENIZE_TABLE,
};

/** The rows that the document's table must have for these fields. */
function rowsOf({ done, ignored, neutral, refused }: FieldTable<z.ZodRawShape>): string[][] {
  const values = (taken: readonly unknown[]): string => taken.map((value) => `\`${JSON.stringify(value)}\``).join(', ');
  return [
    ...Object.entries(done).map(([name, schema]) => [name, (schema as z.ZodType).description ?? '']),
    ...Object.entries(neutral).map(([name, taken]) => [name, `only ${values(taken)}`]),
    ...(ignored.length === 0 ? [] : [[ignored.join('`, `'), 'any value; they cannot change the answer']]),
    ...Object.entries(refused).map(([name, why]) => [name, `refused: ${why}`]),
  ].map(([name, text]) => [`\`${name}\``, text ?? '']);
}

/** Rows of the first table below a heading, without its head. */
function documentedRows(document: string, heading: string): string[][] {
  const [, section = ''] = document.split(`### ${heading}\n`);
  const lines = section.split('\n');
  const first = lines.findIndex((line) => line.startsWith('|'));
  const count = lines.slice(first).findIndex((line) => !line.startsWith('|'));
  return lines.slice(first, first + count).flatMap((line, index) => {
    const cells = line.split('|').slice(1, -1);
    return index < 2 ? [] : [cells.map((cell) => cell.trim())];
  });
}

describe('the HTTP document docs/http.md', () => {
  const document = readFileSync(join(packageRoot(), 'docs', 'http.md'), 'utf8');

  for (const [heading, table] of Object.entries(TABLES)) {
    it(`says of each field of ${heading} what becomes of it`, () => {
      const expected = rowsOf(table);
      const shown = expected.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
      assert.deepEqual(documentedRows(document, heading), expected, `the table must be:\n${shown}`);
    });
  }
});
