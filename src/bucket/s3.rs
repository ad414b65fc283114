//! A bucket in an S3-compatible store, through the AWS SDK (`s3.md`, part B).
//!
//! Two clients from one configuration. `cas` carries conditional writes: no retries, since a retry of a write that landed
//! meets its own work and reports a false conflict; short time-outs; a pool of its own, so that bulk reads cannot starve
//! it. `bulk` carries reads, lists and removals.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    AppName, BehaviorVersion, Builder as ConfigBuilder, Credentials as Keys, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, SharedCredentialsProvider, StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::Builder as HttpBuilder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

use super::{Bucket, BucketError, Changed, ETag, Entry, Object, Reply, StoreTime, WriteOutcome};

/// The belt around a conditional write, over the SDK's own limit of 6 s, which does not cover every step.
const WRITE_LIMIT: Duration = Duration::from_secs(7);

/// The belt around a read and its body.
const READ_LIMIT: Duration = Duration::from_secs(45);

/// The largest object that is read. Records are a few kilobytes.
const LARGEST: i64 = 8 << 20;

/// Below the shortest time after which stores are known to close idle connections (aws-sdk-rust#1417).
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// A bucket in a store.
pub struct S3Bucket {
    cas: Client,
    bulk: Client,
    bucket: String,
    prefix: String,
    endpoint: Option<String>,
    /// Some stores (Hetzner, DigitalOcean) compare the tag in `If-Match` without the quotes that they give it in.
    unquoted: AtomicBool,
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Bucket({})", self.name())
    }
}

/// Where and which.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The bucket's name.
    pub bucket: String,
    /// What every key begins with, without a slash at either end; may be empty.
    pub prefix: String,
    /// The store's address, when it is not Amazon's.
    pub endpoint: Option<String>,
    /// The region; us-east-1 when nothing is said.
    pub region: Option<String>,
    /// Where keys come from.
    pub credentials: Credentials,
}

/// Where keys come from.
#[derive(Clone)]
pub enum Credentials {
    /// The environment, a web identity, the container or the instance, as celld takes them: no profiles, and nobody asks
    /// the instance when keys are given.
    Ambient,
    /// These.
    Stated {
        /// The access key.
        access_key: String,
        /// Its secret.
        secret_key: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ambient => "Ambient",
            Self::Stated { .. } => "Stated",
        })
    }
}

impl S3Bucket {
    /// Makes the clients. Nothing is sent yet.
    pub fn open(options: S3Options) -> Self {
        let region = Region::new(options.region.unwrap_or_else(|| "us-east-1".to_owned()));
        let credentials = provider(&options.credentials, &region);
        let common = || {
            let mut config = ConfigBuilder::new()
                .behavior_version(BehaviorVersion::v2026_01_12())
                .region(region.clone())
                .credentials_provider(credentials.clone())
                .sleep_impl(TokioSleep::new())
                .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
                .force_path_style(options.endpoint.is_some());
            config.set_endpoint_url(options.endpoint.clone());
            config
        };
        let seconds = Duration::from_secs_f32;
        let cas = common()
            .http_client(http_client())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts(seconds(2.0), seconds(4.0), seconds(5.0), seconds(6.0)))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let bulk = common()
            .http_client(http_client())
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .timeout_config(timeouts(seconds(3.1), seconds(10.0), seconds(15.0), seconds(40.0)));
        Self {
            cas: Client::from_conf(named(cas, "scafo-cas").build()),
            bulk: Client::from_conf(named(bulk, "scafo").build()),
            bucket: options.bucket,
            prefix: options.prefix,
            endpoint: options.endpoint,
            unquoted: AtomicBool::new(false),
        }
    }

    fn whole(&self, key: &str) -> String {
        if self.prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{}/{key}", self.prefix)
        }
    }

    /// The tag as this store wants it in a condition.
    fn condition(&self, etag: &ETag) -> String {
        let tag = etag.as_str();
        if self.unquoted.load(Ordering::Relaxed) {
            tag.trim_matches('"').to_owned()
        } else {
            tag.to_owned()
        }
    }

    async fn fetch(&self, key: &str, unless: Option<&ETag>) -> Result<Reply<Fetched>, BucketError> {
        let clock = StoreClock::default();
        let mut request = self.bulk.get_object().bucket(&self.bucket).key(self.whole(key));
        if let Some(etag) = unless {
            request = request.if_none_match(self.condition(etag));
        }
        let fetch = async {
            let output = match request.customize().interceptor(clock.clone()).send().await {
                Ok(output) => output,
                Err(error) => {
                    let failure = Failure::of(&error);
                    return match (failure.status, failure.code.as_str()) {
                        (Some(304), _) => Ok(Fetched::Unchanged),
                        (_, "NoSuchKey") => Ok(Fetched::Absent),
                        (Some(404), code) if code != "NoSuchBucket" => Ok(Fetched::Absent),
                        _ => Err(self.read_error(&failure)),
                    };
                }
            };
            if output.content_length().is_some_and(|length| length > LARGEST) {
                return Err(BucketError::Invalid(format!("{key} is larger than any record, 8 MiB")));
            }
            let etag = output.e_tag().and_then(ETag::new);
            let etag = etag.ok_or_else(|| BucketError::Unreachable(format!("the store gave {key} without an ETag")))?;
            let body = output.body.collect().await;
            let body = body
                .map_err(|error| BucketError::Unreachable(format!("{key} broke off: {error}")))?
                .to_vec();
            Ok(Fetched::Object(Object { body, etag }))
        };
        let value = within(READ_LIMIT, fetch).await??;
        Ok(Reply {
            value,
            time: clock.time(),
        })
    }

    async fn put(&self, key: &str, etag: Option<&ETag>, body: Vec<u8>) -> Reply<WriteOutcome> {
        let clock = StoreClock::default();
        let request = self
            .cas
            .put_object()
            .bucket(&self.bucket)
            .key(self.whole(key))
            .content_type("application/json")
            .body(ByteStream::from(body));
        let request = match etag {
            Some(etag) => request.if_match(self.condition(etag)),
            None => request.if_none_match("*"),
        };
        let sent = within(WRITE_LIMIT, request.customize().interceptor(clock.clone()).send()).await;
        let value = match sent {
            Ok(Ok(output)) => match output.e_tag().and_then(ETag::new) {
                Some(etag) => WriteOutcome::Applied(etag),
                None => WriteOutcome::Unknown("the store gave no ETag for a write".to_owned()),
            },
            Ok(Err(error)) => self.write_outcome(&Failure::of(&error), etag.is_some()),
            Err(error) => WriteOutcome::Unknown(error.to_string()),
        };
        Reply {
            value,
            time: clock.time(),
        }
    }

    /// What a failed write means: by the store's code first, then by the status (`s3.md`, part B).
    fn write_outcome(&self, failure: &Failure, is_replace: bool) -> WriteOutcome {
        if failure.is_configuration() {
            return WriteOutcome::Fatal(self.read_error(failure));
        }
        match (failure.code.as_str(), failure.status) {
            // An error in the body of a success says nothing that can be trusted.
            (_, Some(200..=299)) => WriteOutcome::Unknown(failure.text.clone()),
            ("ConditionalRequestConflict" | "OperationAborted" | "ConcurrentModification", _) | (_, Some(409)) => {
                WriteOutcome::Contended
            }
            ("PreconditionFailed", _) | (_, Some(412)) => WriteOutcome::Rejected,
            ("NoSuchKey", _) | (_, Some(404)) if is_replace => WriteOutcome::Rejected,
            ("SlowDown" | "Throttling" | "TooManyRequests", _) | (_, Some(429 | 503)) => WriteOutcome::Throttled,
            (_, Some(400..=499 | 501)) => WriteOutcome::Fatal(self.read_error(failure)),
            _ => WriteOutcome::Unknown(failure.text.clone()),
        }
    }

    fn read_error(&self, failure: &Failure) -> BucketError {
        let said = format!("{} says: {}", self.place(), failure.text);
        match (failure.code.as_str(), failure.status) {
            _ if failure.no_credentials => BucketError::Denied(
                "no credentials were found: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor a web identity, nor a role of this machine".to_owned(),
            ),
            ("NoSuchBucket", _) => {
                BucketError::NoSuchBucket(format!("{} has no bucket called {}", self.place(), self.bucket))
            }
            ("SignatureDoesNotMatch", _) => {
                BucketError::Denied(format!("{} does not accept the secret key of these credentials", self.place()))
            }
            ("InvalidAccessKeyId", _) => {
                BucketError::Denied(format!("{} does not know the access key of these credentials", self.place()))
            }
            ("ExpiredToken", _) => BucketError::Denied(format!("the credentials have expired for {}", self.place())),
            ("SlowDown" | "Throttling" | "TooManyRequests", _) | (_, Some(429 | 503)) => BucketError::Throttled(said),
            ("NotImplemented", _) | (_, Some(501)) => BucketError::Unsupported(said),
            (_, Some(401 | 403)) => BucketError::Denied(said),
            (_, Some(300..=499)) => BucketError::Invalid(said),
            (_, Some(_)) => BucketError::Unreachable(said),
            (_, None) => BucketError::Unreachable(format!("{} gives no answer: {}", self.place(), failure.text)),
        }
    }

    /// The store, for a sentence.
    fn place(&self) -> String {
        self.endpoint.clone().unwrap_or_else(|| "Amazon S3".to_owned())
    }
}

fn provider(credentials: &Credentials, region: &Region) -> SharedCredentialsProvider {
    if let Credentials::Stated { access_key, secret_key } = credentials {
        return SharedCredentialsProvider::new(Keys::new(access_key, secret_key, None, None, "stated"));
    }
    let config = ProviderConfig::empty()
        .with_region(Some(region.clone()))
        .with_http_client(http_client());
    let config = config.with_sleep_impl(TokioSleep::new());
    let chain = CredentialsProviderChain::first_try("environment", EnvironmentVariableCredentialsProvider::new())
        .or_else(
            "web identity",
            WebIdentityTokenCredentialsProvider::builder()
                .configure(&config)
                .build(),
        )
        .or_else(
            "container",
            EcsCredentialsProvider::builder().configure(&config).build(),
        )
        .or_else(
            "instance",
            ImdsCredentialsProvider::builder().configure(&config).build(),
        );
    SharedCredentialsProvider::new(chain)
}

enum Fetched {
    Object(Object),
    Unchanged,
    Absent,
}

fn http_client() -> SharedHttpClient {
    HttpBuilder::new()
        .pool_idle_timeout(IDLE_LIMIT)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

fn timeouts(connect: Duration, read: Duration, attempt: Duration, operation: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(connect)
        .read_timeout(read)
        .operation_attempt_timeout(attempt)
        .operation_timeout(operation)
        .build()
}

/// Names the lane in the store's logs.
fn named(config: ConfigBuilder, name: &'static str) -> ConfigBuilder {
    match AppName::new(name) {
        Ok(name) => config.app_name(name),
        Err(_) => config,
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, BucketError> {
    let limited = tokio::time::timeout(limit, work).await;
    limited.map_err(|_| BucketError::Unreachable(format!("no answer within {} s", limit.as_secs())))
}

/// The store's clock in one reply, which is in none of the SDK's outputs.
#[derive(Clone, Debug, Default)]
struct StoreClock(Arc<Mutex<StoreTime>>);

impl StoreClock {
    fn time(&self) -> StoreTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for StoreClock {
    fn name(&self) -> &'static str {
        "StoreClock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.response().headers();
        let read = |name: &str| {
            let at = httpdate::parse_http_date(headers.get(name)?).ok()?;
            let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        };
        // A cache's date is not the store's present.
        let time = if headers.get("age").is_some() {
            StoreTime::default()
        } else {
            StoreTime {
                date_ms: read("date"),
                last_modified_ms: read("last-modified"),
            }
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
        Ok(())
    }
}

/// A failed call, as far as the SDK tells.
#[derive(Debug)]
struct Failure {
    status: Option<u16>,
    code: String,
    text: String,
    no_credentials: bool,
}

impl Failure {
    fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        let (code, message) = match error {
            SdkError::ServiceError(service) => (
                service.err().code().unwrap_or_default().to_owned(),
                service.err().message().unwrap_or_default(),
            ),
            _ => (String::new(), ""),
        };
        let chain = DisplayErrorContext(error).to_string();
        let mut text = String::new();
        match error {
            SdkError::ServiceError(_) => {
                let _ = write!(
                    text,
                    "{message}{}",
                    if code.is_empty() {
                        String::new()
                    } else {
                        format!(" ({code})")
                    }
                );
                if text.is_empty() {
                    let _ = write!(text, "status {}", status.unwrap_or_default());
                }
            }
            SdkError::TimeoutError(_) => text.push_str("no answer in time"),
            _ => text.push_str(&innermost(error)),
        }
        let no_credentials =
            status.is_none() && (chain.contains("no providers in chain") || chain.contains("CredentialsNotLoaded"));
        Self {
            status,
            code,
            text: text.trim().to_owned(),
            no_credentials,
        }
    }

    /// Whether only a change of the configuration can help.
    fn is_configuration(&self) -> bool {
        self.no_credentials || self.code == "NoSuchBucket"
    }
}

/// The last of the errors that caused one another: the one that says what the system said.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[async_trait]
impl Bucket for S3Bucket {
    fn name(&self) -> String {
        let prefix = if self.prefix.is_empty() {
            String::new()
        } else {
            format!("/{}", self.prefix)
        };
        let endpoint = self
            .endpoint
            .as_ref()
            .map(|endpoint| format!(" at {endpoint}"))
            .unwrap_or_default();
        format!("s3://{}{prefix}{endpoint}", self.bucket)
    }

    async fn get(&self, key: &str) -> Result<Reply<Option<Object>>, BucketError> {
        let Reply { value, time } = self.fetch(key, None).await?;
        let value = match value {
            Fetched::Object(object) => Some(object),
            Fetched::Absent | Fetched::Unchanged => None,
        };
        Ok(Reply { value, time })
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Reply<Changed>, BucketError> {
        let Reply { value, time } = self.fetch(key, Some(etag)).await?;
        let value = match value {
            Fetched::Unchanged => Changed::Unchanged,
            // A store that did not understand the condition sends what is there all the same.
            Fetched::Object(object) if object.etag == *etag => Changed::Unchanged,
            Fetched::Object(object) => Changed::Changed(object),
            Fetched::Absent => Changed::Absent,
        };
        Ok(Reply { value, time })
    }

    async fn list(&self, prefix: &str) -> Result<Reply<Vec<Entry>>, BucketError> {
        let clock = StoreClock::default();
        let own = if self.prefix.is_empty() {
            String::new()
        } else {
            format!("{}/", self.prefix)
        };
        let mut entries = Vec::new();
        let mut token = None;
        loop {
            let request = self
                .bulk
                .list_objects_v2()
                .bucket(&self.bucket)
                .prefix(format!("{own}{prefix}"));
            let request = request.set_continuation_token(token.take());
            let page = within(READ_LIMIT, request.customize().interceptor(clock.clone()).send()).await?;
            let page = page.map_err(|error| self.read_error(&Failure::of(&error)))?;
            for object in page.contents() {
                let Some(key) = object.key().and_then(|key| key.strip_prefix(&own)) else {
                    continue;
                };
                entries.push(Entry {
                    key: key.to_owned(),
                    etag: object.e_tag().and_then(ETag::new),
                    last_modified_ms: object
                        .last_modified()
                        .and_then(|at| u64::try_from(at.to_millis().ok()?).ok()),
                });
            }
            token = page.next_continuation_token().map(ToOwned::to_owned);
            if token.is_none() {
                entries.sort_by(|one, other| one.key.cmp(&other.key));
                return Ok(Reply {
                    value: entries,
                    time: clock.time(),
                });
            }
        }
    }

    async fn create(&self, key: &str, body: Vec<u8>) -> Reply<WriteOutcome> {
        self.put(key, None, body).await
    }

    async fn replace(&self, key: &str, etag: &ETag, body: Vec<u8>) -> Reply<WriteOutcome> {
        self.put(key, Some(etag), body).await
    }

    async fn remove(&self, key: &str) -> Result<(), BucketError> {
        let request = self.bulk.delete_object().bucket(&self.bucket).key(self.whole(key));
        match within(READ_LIMIT, request.send()).await? {
            Ok(_) => Ok(()),
            Err(error) => match Failure::of(&error) {
                failure if failure.status == Some(404) && failure.code != "NoSuchBucket" => Ok(()),
                failure => Err(self.read_error(&failure)),
            },
        }
    }

    fn switch_etag_dialect(&self) -> bool {
        !self.unquoted.swap(true, Ordering::Relaxed)
    }
}
