export { ERROR_KINDS, type ErrorCode, type ErrorKind } from './registry.js';
export { assertInvariant, requirePresent } from './assert-invariant.js';
export { OdmoeError, isErrorCode, toOdmoeError } from './odmoe-error.js';
