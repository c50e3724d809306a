/**
 * The messages of proto/odmoe/v1 as codecs return and accept them. Their fields and comments are generated from the .proto files
 * (scripts/generate-messages.mjs). `Message` turns each into a value type: lists and bytes are read-only, absent optional fields are null, and a
 * oneof becomes a union whose `kind` names the member that is set. A type that differs from the generated one has a comment about the
 * difference.
 */
import type * as Generated from './generated/messages.js';

type Message<T> = T extends Uint8Array
  ? Uint8Array
  : T extends readonly (infer Member)[]
    ? readonly Message<Member>[]
    : T extends { kind?: string }
      ? OneOf<T>
      : T extends object
        ? Fields<T>
        : T;

/** The decoder's marks of optional fields (`_seed`) are left out. */
type Fields<T> = {
  [Name in keyof T as Name extends `_${string}` | MayBeUnstated ? never : Name]-?: Field<T, Name>;
} & { [Name in keyof T & MayBeUnstated]?: Field<T, Name> };

type Field<T, Name extends keyof T> =
  object extends Pick<T, Name> ? Message<NonNullable<T[Name]>> | null : Message<NonNullable<T[Name]>>;

/**
 * Fields of qualities (main.quality), in whichever message: optional for code that makes a message of an exact cluster. And the versions of a
 * node, which identities of earlier releases do not state. And a worker's share of strict homes and the experts that it keeps: shares are equal until
 * workers are measured, and nobody keeps experts until main has counted uses.
 */
type MayBeUnstated =
  | 'quality'
  | 'slicesDigest'
  | 'arithmetic'
  | 'upper'
  | 'critical'
  | 'criticalTheta'
  | 'logicalCache'
  | 'homeShare'
  | 'keptExperts'
  | 'newestProtocol'
  | 'arithmeticVersion';

/** `Ours`: members whose types are ours rather than the generated ones. */
type OneOf<T extends { kind?: string }, Ours extends Partial<Record<NonNullable<T['kind']>, object>> = object> = {
  [Name in NonNullable<T['kind']>]: { kind: Name } & {
    [Own in Name]: Own extends keyof Ours ? Ours[Own] : Message<NonNullable<T[Own & keyof T]>>;
  };
}[NonNullable<T['kind']>];

/** Makes these fields optional for code that makes the message; a decoder always sets them. */
type LeftOut<T, Names extends keyof T> = Omit<T, Names> & Partial<Pick<T, Names>>;

export type RoleName = Generated.Role;
export type TensorType = Generated.TensorType;
export type AcceptReply = Message<Generated.AcceptReply>;
export type AcceptRequest = Message<Generated.AcceptRequest>;
export type AlignRows = Message<Generated.AlignRows>;
export type AlignToken = LeftOut<Message<Generated.AlignToken>, 'joint' | 'kept'>;
export type BeginSequence = Omit<
  LeftOut<Message<Generated.BeginSequence>, 'prefixSequence' | 'prefixPositions'>,
  'sampling'
> & { sampling: SamplingMessage | null };
export type CacheStatus = Message<Generated.CacheStatus>;
export type ChatMessage = LeftOut<
  Message<Generated.ChatMessage>,
  'toolCalls' | 'toolCallId' | 'name' | 'reasoningContent'
>;
export type Count = Message<Generated.Count>;
export type CountsReply = Message<Generated.CountsReply>;
export type CreateTokenReply = Message<Generated.CreateTokenReply>;
export type CreateTokenRequest = Message<Generated.CreateTokenRequest>;
export type DraftMetrics = Message<Generated.DraftMetrics>;
export type DraftToken = Message<Generated.DraftToken>;
export type EndSequence = Message<Generated.EndSequence>;
export type Execute = Message<Generated.Execute>;
export type ExecuteResult = Message<Generated.ExecuteResult>;
export type ExpertFailure = Message<Generated.ExpertFailure>;
export type ExpertResult = Message<Generated.ExpertResult>;
export type ExpertRows = Message<Generated.ExpertRows>;
export type Finished = Message<Generated.Finished>;
export type GenerateReply = Message<Generated.GenerateReply>;
export type GenerateRequest = Omit<
  LeftOut<
    Message<Generated.GenerateRequest>,
    'templateArguments' | 'continueLast' | 'promptLogprobs' | 'showSpecialTokens' | 'expectedText'
  >,
  'messages' | 'sampling'
> & { messages: readonly ChatMessage[]; sampling: SamplingMessage | null };
export type HopStages = Message<Generated.HopStages>;
export type HostMemoryStatus = Message<Generated.HostMemoryStatus>;
export type JoinReply = Message<Generated.JoinReply>;
export type JoinRequest = Message<Generated.JoinRequest>;
export type JoinTokenLine = Message<Generated.JoinTokenLine>;
export type KeptExperts = Message<Generated.KeptExperts>;
export type LayerWait = Message<Generated.LayerWait>;
export type LinkBytes = Message<Generated.LinkBytes>;
export type ListedNode = Message<Generated.ListedNode>;
export type ListNodesReply = Message<Generated.ListNodesReply>;
export type ListTokensReply = Message<Generated.ListTokensReply>;
export type LogicalCacheMetrics = Message<Generated.LogicalCacheMetrics>;
export type LogitBias = Message<Generated.LogitBias>;
export type NodeIdentity = Message<Generated.NodeIdentity>;
export type NodeStatus = Message<Generated.NodeStatus>;
export type OutputFormat = Message<Generated.OutputFormat>;
export type OutputPart = Message<Generated.OutputPart>;
export type OutputSequence = Message<Generated.OutputSequence>;
export type PackDescription = LeftOut<Message<Generated.PackDescription>, 'slices'>;
export type PackPiece = Message<Generated.PackPiece>;
export type PassCounts = Message<Generated.PassCounts>;
export type PassRow = Message<Generated.PassRow>;
export type PeerProblem = Message<Generated.PeerProblem>;
export type PlacedWorker = Message<Generated.PlacedWorker>;
export type Placement = Message<Generated.Placement>;
export type PoolCounts = Message<Generated.PoolCounts>;
export type Predict = LeftOut<Message<Generated.Predict>, 'workers' | 'mainAnnounces' | 'runUs'>;
export type Restart = Message<Generated.Restart>;
export type Announce = LeftOut<Message<Generated.Announce>, 'doubted'>;
export type PrefixKept = Message<Generated.PrefixKept>;
export type PromptLogprobs = Message<Generated.PromptLogprobs>;
export type PromptToken = Message<Generated.PromptToken>;
export type Prospect = Message<Generated.Prospect>;
export type ReadManifestRequest = LeftOut<Message<Generated.ReadManifestRequest>, 'slicesDigest'>;
export type ReadPackRequest = LeftOut<Message<Generated.ReadPackRequest>, 'slicesDigest'>;
export type Refusal = Message<Generated.Refusal>;
export type Release = Message<Generated.Release>;
export type RemoveNodeReply = Message<Generated.RemoveNodeReply>;
export type RemoveNodeRequest = Message<Generated.RemoveNodeRequest>;
export type DrainRequest = Message<Generated.DrainRequest>;
export type DrainReply = Message<Generated.DrainReply>;
export type DrainedNode = Message<Generated.DrainedNode>;
export type RenewReply = Message<Generated.RenewReply>;
export type RenewRequest = Message<Generated.RenewRequest>;
export type RevokeTokenRequest = Message<Generated.RevokeTokenRequest>;
export type RowRange = Message<Generated.RowRun>;
/** A request's sampling options. An absent option is off; main chooses an absent seed. */
export type SamplingMessage = LeftOut<
  Message<Generated.SamplingOptions>,
  'seed' | 'presencePenalty' | 'frequencyPenalty' | 'logitBias' | 'outputFormat'
>;
export type SchemaText = Message<Generated.SchemaText>;
export type SepMetrics = Message<Generated.SepMetrics>;
export type ShadowReply = OneOf<Generated.ShadowReply, { predict: Predict }>;
export type ShadowRequest = OneOf<Generated.ShadowRequest, { begin: BeginSequence; token: AlignToken }>;
export type Started = Message<Generated.Started>;
export type SignedRoster = Message<Generated.SignedRoster>;
export type SlicesDescription = Message<Generated.SlicesDescription>;
export type StatusReply = LeftOut<
  Message<Generated.StatusReply>,
  'verification' | 'trust' | 'insecure' | 'drained' | 'contextPositions' | 'madeForPositions'
>;
export type StreamError = Message<Generated.StreamError>;
export type TemplateArgument = Message<Generated.TemplateArgument>;
export type Timing = Message<Generated.Timing>;
export type TokenReply = Message<Generated.Token>;
export type TokenLogprob = Message<Generated.TokenLogprob>;
export type ToolCall = Message<Generated.ToolCall>;
export type TrustStatus = Message<Generated.TrustStatus>;
export type WaitingMachine = Message<Generated.WaitingMachine>;
export type Welcome = Message<Generated.Welcome>;
export type Verification = Message<Generated.Verification>;
export type WorkerGroup = Message<Generated.WorkerGroup>;
export type WorkerHops = Message<Generated.WorkerHops>;
export type WorkerKept = Message<Generated.WorkerKept>;
export type WorkerReply = Message<Generated.WorkerReply>;
export type WorkerRequest = OneOf<Generated.WorkerRequest, { predict: Predict; announce: Announce }>;
export type WorkerWait = Message<Generated.WorkerWait>;

/** One layer of a pass, for some of the pass's rows. */
export type PassLayer = Pick<Execute, 'pass' | 'rows' | 'layer'>;
/** Times of a worker's work on an expert, on the worker's clock. */
export type ExpertTimes = Pick<
  ExpertResult,
  'loadUs' | 'loadedBeforeUs' | 'begunUs' | 'answeredUs' | 'calledUs' | 'endedUs'
>;
/** The times when no work was done. */
export const NO_TIMES: ExpertTimes = {
  loadUs: 0,
  loadedBeforeUs: 0,
  begunUs: 0,
  answeredUs: 0,
  calledUs: 0,
  endedUs: 0,
};
