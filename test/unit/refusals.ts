import assert from 'node:assert/strict';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';

/** The result of a function that must not refuse. */
export function done<Result extends object>(result: Result | Refusal): Result {
  if (isRefusal(result)) assert.fail(result.refusal);
  return result;
}

/** The words of a function that must refuse. */
export function refusalOf(result: object): string {
  assert.ok(isRefusal(result), 'refused');
  return result.refusal;
}
