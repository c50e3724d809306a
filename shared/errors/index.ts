export { ERROR_KINDS, type ErrorCode, type ErrorKind } from './registry.js';
export { OdmoeError, isErrorCode, toOdmoeError } from './odmoe-error.js';
