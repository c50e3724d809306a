import type { GenerationWatch } from '../delivery/generation-watch.js';
import type { FastifyInstance } from 'fastify';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { chatAbilities } from '../conversation/prepare-chat.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { type AnswerPart, type Endpoint, lastLine, emptyPart } from './answer-lines.js';
import { type AnswerRequest, chatAnswer, promptAnswer, withinPositions } from './answer-request.js';
import { AnswerStream } from './answer-stream.js';
import { modelDescription, modelTags, runningModels } from './model-listing.js';
import { requireTaggedModel } from './model-name.js';
import { ollamaHead, lineOf, ollamaDialect } from './ollama-dialect.js';
import {
  type OllamaChatFields,
  type GenerateFields,
  readChatBody,
  readGenerateBody,
  readShowBody,
} from './request-fields.js';

/** The version of Ollama whose API is supported. Clients require a minimum version (VS Code: 0.6.4). The text after the hyphen names this server. */
export const OLLAMA_API_VERSION = '0.12.6';

/** Registers Ollama's /api. */
export const registerOllama: RegisterRoutes = (app, context) => {
  addAnswers(app, context, 'chat', (body) => {
    const fields = readChatBody(body);
    const isLoad = (fields.messages ?? []).length === 0;
    return { fields, answer: isLoad ? null : () => chatAnswer(fields, context) };
  });
  addAnswers(app, context, 'generate', (body) => {
    const fields = readGenerateBody(body);
    const isLoad = (fields.prompt ?? '') === '';
    return { fields, answer: isLoad ? null : () => promptAnswer(fields, context) };
  });
  addListings(app, context);
  refuseOthers(app, context);
};

interface ReadRequest {
  fields: OllamaChatFields | GenerateFields;
  /** null: the request asks only whether the model is loaded. */
  answer: (() => AnswerRequest) | null;
}

function addAnswers(
  app: FastifyInstance,
  context: HttpApiContext,
  endpoint: Endpoint,
  read: (body: unknown) => ReadRequest,
): void {
  const dialect = ollamaDialect(endpoint, context);
  app.post(`/api/${endpoint}`, { config: { dialect } }, async (request, reply) => {
    const { fields, answer } = read(request.body);
    requireTaggedModel(fields.model, context.model.name);
    if (answer === null) return loadAnswer(fields, endpoint, context);
    const asked = answer();
    if (fields.stream === false) {
      await context.deliverBody(request, reply, dialect, (signal, watch) => wholeAnswer(asked, context, signal, watch));
    } else {
      await context.deliverStream(request, reply, dialect, (signal, watch) =>
        streamAnswer(asked, context, signal, watch),
      );
    }
    return reply;
  });
}

/** Answers at once, because the model is always loaded. */
function loadAnswer({ keep_alive: keep }: ReadRequest['fields'], endpoint: Endpoint, context: HttpApiContext): object {
  const reason = keep === 0 || (typeof keep === 'string' && /^0[a-z]*$/.test(keep)) ? 'unload' : 'load';
  return lastLine(endpoint, ollamaHead(context), emptyPart(), { done_reason: reason });
}

async function* streamAnswer(
  asked: AnswerRequest,
  context: HttpApiContext,
  signal: AbortSignal,
  watch: GenerationWatch,
): AsyncGenerator<string, void, undefined> {
  const stream = new AnswerStream(asked.reading, context);
  const generate = await withinPositions(asked, context, signal);
  for await (const reply of context.generate(generate, signal, watch)) {
    const lines = stream.lines(reply);
    if (lines.length > 0) yield lines.map(lineOf).join('');
  }
}

async function wholeAnswer(
  asked: AnswerRequest,
  context: HttpApiContext,
  signal: AbortSignal,
  watch: GenerationWatch,
): Promise<object> {
  const stream = new AnswerStream(asked.reading, context);
  const generate = await withinPositions(asked, context, signal);
  const parts: AnswerPart[] = [];
  let whole: object | null = null;
  for await (const reply of context.generate(generate, signal, watch)) whole = stream.whole(reply, parts);
  if (whole === null) throw new OdmoeError('INTERNAL', 'an answer ended without saying how');
  return whole;
}

function addListings(app: FastifyInstance, context: HttpApiContext): void {
  const { model } = context;
  const route = { config: { dialect: ollamaDialect('chat', context) } };
  app.get('/api/version', route, async () => ({ version: `${OLLAMA_API_VERSION}-odmoe.${odmoeVersion()}` }));
  app.get('/api/tags', route, async () => modelTags(model));
  app.get('/api/ps', route, async () => runningModels(model, context.status().nodes));
  const capabilities = capabilitiesOf(context);
  const templateProblem = templateProblemOf(context);
  app.post('/api/show', route, async (request) => {
    const { model: asked, name } = readShowBody(request.body);
    requireTaggedModel(asked ?? name ?? '', model.name);
    return modelDescription(model, capabilities, templateProblem);
  });
}

/** Tools work with every template. If a template takes no tools, a message describes them to the model. */
function capabilitiesOf({ model: { tokenizer } }: HttpApiContext): string[] {
  if (tokenizer?.hasChatTemplate !== true) return ['completion'];
  return ['completion', 'tools', ...(chatAbilities(tokenizer).thinking ? ['thinking'] : [])];
}

/** The error of the model's chat template where it fails with tools; null: it does not fail. */
function templateProblemOf({ model: { tokenizer } }: HttpApiContext): string | null {
  return tokenizer?.hasChatTemplate === true ? (chatAbilities(tokenizer).problem?.message ?? null) : null;
}

const ONE_MODEL = 'main serves the one model that its cluster was started with';
const NO_EMBEDDINGS = 'the model makes text, and no embeddings';

/** Routes of Ollama that are missing here, with the reason. */
const OTHERS = [
  ['POST', 'pull', ONE_MODEL],
  ['POST', 'push', ONE_MODEL],
  ['POST', 'create', ONE_MODEL],
  ['POST', 'copy', ONE_MODEL],
  ['DELETE', 'delete', ONE_MODEL],
  ['HEAD', 'blobs/*', ONE_MODEL],
  ['POST', 'blobs/*', ONE_MODEL],
  ['POST', 'embed', NO_EMBEDDINGS],
  ['POST', 'embeddings', NO_EMBEDDINGS],
] as const;

function refuseOthers(app: FastifyInstance, context: HttpApiContext): void {
  const config = { dialect: ollamaDialect('chat', context) };
  for (const [method, path, reason] of OTHERS) {
    const handler = (): never => {
      throw new OdmoeError('ROUTE_UNKNOWN', `/api/${path} is not served: ${reason}`);
    };
    app.route({ method, url: `/api/${path}`, config, handler });
  }
}
