import type { FastifyReply } from 'fastify';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { errorHeaders, openAiErrorBody } from '../errors/error-answer.js';
import type { ErrorForm } from './dialect.js';

/** Answers with the error's status, in the form of the route's dialect unless another is given. */
export function sendError(
  reply: FastifyReply,
  error: OdmoeError,
  dialect: ErrorForm | undefined = routeForm(reply),
): FastifyReply {
  reply.request.account?.failed(error.code);
  const body = dialect?.errorBody(error, reply.request.id) ?? openAiErrorBody(error);
  return reply
    .code(error.kind.httpStatus)
    .headers(errorHeaders(error))
    .type('application/json; charset=utf-8')
    .send(JSON.stringify(body));
}

function routeForm({ routeOptions, request }: FastifyReply): ErrorForm | undefined {
  const { dialect } = routeOptions.config;
  return typeof dialect === 'function' ? dialect(request) : dialect;
}
